# Plain Pingora proxy, for the bench kit's run.sh: -g PATH/bare-pingora.sh
GW_PORT=9162 GW_HEALTH_URL=http://127.0.0.1:9162/health
BARE=${BARE:-$(dirname "${BASH_SOURCE[0]}")/../../target/release/bare-pingora}
gw_start() { $PINGW "$BARE" 127.0.0.1:$GW_PORT "${MOCK#http://}" >> "$LOG/bare-pingora.log" 2>&1 & GW_PID=$!; }
gw_req() { HDRS=(); MODEL=mock-$2; local B=http://127.0.0.1:$GW_PORT; case $1 in
  chat) FMT=chat URL=$B/v1/chat/completions;; msgs) FMT=messages URL=$B/v1/messages;; *) return 1;; esac; }
