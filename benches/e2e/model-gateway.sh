# Gateway for the bench kit's run.sh: -g PATH/model-gateway.sh
# Authentication, routing, metering, metrics and access log are on; one worker thread.
# GATEWAY: path of the binary; target/release/model-gateway by default.
GW_PORT=9160 GW_HEALTH_URL=http://127.0.0.1:9161/readyz
GATEWAY=${GATEWAY:-$(dirname "${BASH_SOURCE[0]}")/../../target/release/model-gateway}
GATEWAY_KEY=sk-bench-0123456789
gateway_conf() {
  local dir=$PEERS/run/model-gateway kind apis
  mkdir -p "$dir"
  cat > "$dir/gateway.toml" <<TOML
[server]
listen  = ["127.0.0.1:$GW_PORT"]
admin   = "127.0.0.1:9161"
threads = 1
[limits]
pool = 2048
[log]
access = "access.log"
[store]
sqlite = "state.db"
TOML
  {
    printf '[[provider]]\nname = "oa"\nkind = "openai"\napis = ["chat"]\nbase_url = "%s/v1"\ncredential = { value = "sk-mock" }\n' "$MOCK"
    printf '[[provider]]\nname = "an"\nkind = "anthropic"\nbase_url = "%s/v1"\ncredential = { value = "sk-mock" }\n' "$MOCK"
    for spec in 200-bulk 200-0ms 200-20ms 200-5ms; do
      printf '[[model]]\nid = "mock-%s"\ntargets = [{ provider = "oa", model = "mock-%s" }]\n' $spec $spec
      printf '[[model]]\nid = "an-mock-%s"\ntargets = [{ provider = "an", model = "mock-%s" }]\n' $spec $spec
    done
  } > "$dir/routes.toml"
  printf '[[key]]\nname = "bench"\nsha256 = "%s"\n' "$(printf %s "$GATEWAY_KEY" | sha256sum | cut -d' ' -f1)" > "$dir/keys.toml"
  : > "$dir/access.log"
}
gw_start() { gateway_conf; $PINGW "$GATEWAY" serve --conf "$PEERS/run/model-gateway/gateway.toml" >> "$LOG/model-gateway.log" 2>&1 & GW_PID=$!; }
gw_req() { HDRS=("authorization: Bearer $GATEWAY_KEY"); local B=http://127.0.0.1:$GW_PORT; case $1 in
  chat) FMT=chat     MODEL=mock-$2    URL=$B/v1/chat/completions;;
  msgs) FMT=messages MODEL=an-mock-$2 URL=$B/v1/messages;;
  m2c)  FMT=messages MODEL=mock-$2    URL=$B/v1/messages;;
  c2m)  FMT=chat     MODEL=an-mock-$2 URL=$B/v1/chat/completions;;
  *) return 1;; esac; }
