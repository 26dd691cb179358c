#!/bin/sh
# Accounts of dump.sql of New API with their balances. Keys of an account that does not exist are refused.
# Run it once; a second run has no further effect.
set -eu
conf="$(dirname -- "$0")/gateway.toml"
gateway="${MODEL_GATEWAY:-model-gateway}"
account() {
    "$gateway" accounts show --conf "$conf" -- "$1" >/dev/null 2>&1 ||
        "$gateway" accounts create --conf "$conf" -- "$1"
    [ "$2" = 0 ] || "$gateway" accounts credit --conf "$conf" --reference "$3" --note import -- "$1" "$2"
}
account 'alice' 5 'import-new-api-user-1'
account 'bob' 0.500002 'import-new-api-user-2'
"$gateway" accounts disable --conf "$conf" -- 'bob'
account 'bob/token-2' 0.5 'import-new-api-token-2'
"$gateway" accounts disable --conf "$conf" -- 'bob/token-2'
