#!/bin/sh
# Accounts of config.json of Bifrost with their balances. Keys of an account that does not exist are refused.
# Run it once; a second run has no further effect.
set -eu
conf="$(dirname -- "$0")/gateway.toml"
gateway="${MODEL_GATEWAY:-model-gateway}"
account() {
    "$gateway" accounts show --conf "$conf" -- "$1" >/dev/null 2>&1 ||
        "$gateway" accounts create --conf "$conf" -- "$1"
    [ "$2" = 0 ] || "$gateway" accounts credit --conf "$conf" --reference "$3" --note import -- "$1" "$2"
}
account 'platform' 1000000000 'import-bifrost-team-e3b98a4da31a127d4bde6e43033f66ba'
account 'acme' 1000000000 'import-bifrost-customer-2e7d2c03a9507ae265ecf5b5356885a5'
