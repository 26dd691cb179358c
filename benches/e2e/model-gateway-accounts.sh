# Gateway with all accounting features, for the bench kit's run.sh: -g PATH/model-gateway-accounts.sh. Has an account
# with a balance, a price, limits of every kind, and a usage record for each request; on SQLite, or with
# STORE=redis://... on a server. Otherwise like model-gateway.sh.
. "$(dirname "${BASH_SOURCE[0]}")/model-gateway.sh"
gateway_accounts() {
  local dir=$PEERS/run/model-gateway prices limits
  gateway_conf
  [ -z "${STORE:-}" ] || sed -i "s|^sqlite = .*|valkey = \"$STORE\"|" "$dir/gateway.toml"
  prices='price = { input = 2.5, cached_input = 1.25, output = 10 }'
  sed -i "s|^targets = .*|&\n$prices|" "$dir/routes.toml"
  limits='limits = { requests_per_minute = 100000000, tokens_per_minute = 1000000000, concurrent = 100000, spend_per_day = 1000000, spend_per_month = 1000000 }'
  printf 'account = "bench"\n%s\n[[account]]\nname = "bench"\n%s\n' "$limits" "$limits" >> "$dir/keys.toml"
  "$GATEWAY" accounts create bench --conf "$dir/gateway.toml" > /dev/null 2>&1
  "$GATEWAY" accounts credit bench 1000000 --conf "$dir/gateway.toml" > /dev/null 2>&1
}
gw_start() { gateway_accounts; $PINGW "$GATEWAY" serve --conf "$PEERS/run/model-gateway/gateway.toml" >> "$LOG/model-gateway.log" 2>&1 & GW_PID=$!; }
