#!/bin/sh
# Accounts of config.yaml of LiteLLM with their balances. Keys of an account that does not exist are refused.
# Run it once; a second run has no further effect.
set -eu
conf="$(dirname -- "$0")/gateway.toml"
gateway="${MODEL_GATEWAY:-model-gateway}"
account() {
    "$gateway" accounts show --conf "$conf" -- "$1" >/dev/null 2>&1 ||
        "$gateway" accounts create --conf "$conf" -- "$1"
    [ "$2" = 0 ] || "$gateway" accounts credit --conf "$conf" --reference "$3" --note import -- "$1" "$2"
}
account 'litellm-7d0c42f11b4f' 7.5 'import-litellm-7d0c42f11b4fb8bee8c6cbc4e17cdb9b'
account 'platform' 1000000000 'import-litellm-team-628b49d96dcde97a430dd4f597705899'
account 'research' 59.5 'import-litellm-team-c44474038d459e40e4714afefa7bf8da'
