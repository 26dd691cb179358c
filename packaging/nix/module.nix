# NixOS module:
#
#   services.model-gateway = {
#     enable = true;
#     settings.limits.connections = 50000;
#     routes.provider = [{ name = "openai"; kind = "openai"; credential.file = "%d/openai"; }];
#     routes.model = [{ id = "gpt-4o"; targets = [{ provider = "openai"; model = "gpt-4o"; }]; }];
#     credentials.openai = "/run/keys/openai";
#   };
#
# The files are made from the options and checked while the system is built, so that an invalid configuration is never
# activated. keys.toml stays outside, because `model-gateway keys` changes it.
self:
{ config, lib, pkgs, ... }:

let
  cfg = config.services.model-gateway;
  toml = pkgs.formats.toml { };
  routes = toml.generate "routes.toml" cfg.routes;
  gateway = toml.generate "gateway.toml" (lib.recursiveUpdate {
    server = {
      listen = [ "127.0.0.1:8080" ];
      routes = "${routes}";
      keys = cfg.keysFile;
      drain = "2m";
      upgrade_socket = "/run/model-gateway/upgrade.sock";
    };
    store.sqlite = "/var/lib/model-gateway/state.db";
  } cfg.settings);
  checked = pkgs.runCommand "model-gateway-configuration" { } ''
    mkdir $out
    cp ${gateway} $out/gateway.toml
    # Beside the routes only, because the keys are not known here.
    touch keys.toml
    sed 's|^keys = .*|keys = "'$PWD'/keys.toml"|' ${gateway} > gateway.toml
    ${lib.getExe cfg.package} check --no-secrets --conf gateway.toml
  '';
in
{
  options.services.model-gateway = {
    enable = lib.mkEnableOption "the gateway to large language models";
    package = lib.mkOption {
      type = lib.types.package;
      default = self.packages.${pkgs.system}.default;
      description = "The package of the gateway.";
    };
    settings = lib.mkOption {
      inherit (toml) type;
      default = { };
      description = "gateway.toml; see model-gateway-gateway(5).";
    };
    routes = lib.mkOption {
      inherit (toml) type;
      default = { };
      description = "routes.toml; see model-gateway-routes(5). It is readable by all users: name credentials by file.";
    };
    keysFile = lib.mkOption {
      type = lib.types.path;
      default = "/var/lib/model-gateway/keys.toml";
      description = "keys.toml, which `model-gateway keys --keys FILE` changes.";
    };
    credentials = lib.mkOption {
      type = lib.types.attrsOf lib.types.path;
      default = { };
      description = "Files with credentials; the value of NAME is \"%d/NAME\" in the configuration.";
    };
  };

  config = lib.mkIf cfg.enable {
    environment.systemPackages = [ cfg.package ];
    users.users.model-gateway = { isSystemUser = true; group = "model-gateway"; };
    users.groups.model-gateway = { };
    systemd.tmpfiles.rules = [
      "d /var/lib/model-gateway 0750 model-gateway model-gateway -"
      "f ${toString cfg.keysFile} 0640 model-gateway model-gateway -"
    ];
    systemd.services.model-gateway = {
      description = "Gateway to large language models";
      wantedBy = [ "multi-user.target" ];
      wants = [ "network-online.target" ];
      after = [ "network-online.target" ];
      startLimitIntervalSec = 0;
      # A new generation of the system reloads or restarts the service; SIGUSR2 would start the old path again.
      restartTriggers = [ checked ];
      serviceConfig = {
        Type = "notify";
        NotifyAccess = "all";
        ExecStart = "${lib.getExe cfg.package} serve --conf ${checked}/gateway.toml";
        ExecReload = "${pkgs.coreutils}/bin/kill -HUP $MAINPID";
        KillMode = "mixed";
        # Above server.lame_duck and server.drain together.
        TimeoutStopSec = "150s";
        Restart = "on-failure";
        RestartSec = "1s";
        WatchdogSec = "30s";
        LoadCredential = lib.mapAttrsToList (name: file: "${name}:${toString file}") cfg.credentials;
        User = "model-gateway";
        Group = "model-gateway";
        StateDirectory = "model-gateway";
        RuntimeDirectory = "model-gateway";
        LogsDirectory = "model-gateway";
        StateDirectoryMode = "0750";
        LogsDirectoryMode = "0750";
        UMask = "0027";
        LimitNOFILE = 131072;
        LimitCORE = 0;
        NoNewPrivileges = true;
        CapabilityBoundingSet = "";
        PrivateUsers = true;
        ProtectSystem = "strict";
        ProtectHome = true;
        PrivateTmp = true;
        PrivateDevices = true;
        DevicePolicy = "closed";
        ProtectClock = true;
        ProtectHostname = true;
        ProtectControlGroups = true;
        ProtectKernelLogs = true;
        ProtectKernelModules = true;
        ProtectKernelTunables = true;
        ProtectProc = "invisible";
        ProcSubset = "pid";
        RestrictAddressFamilies = [ "AF_INET" "AF_INET6" "AF_UNIX" ];
        RestrictNamespaces = true;
        RestrictRealtime = true;
        RestrictSUIDSGID = true;
        RemoveIPC = true;
        LockPersonality = true;
        MemoryDenyWriteExecute = true;
        KeyringMode = "private";
        SystemCallArchitectures = "native";
        SystemCallFilter = [ "@system-service" "~@privileged @resources" ];
        SystemCallErrorNumber = "EPERM";
      };
    };
  };
}
