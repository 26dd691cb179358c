# The program with its manual pages, completions and shared files.
{ lib, rustPlatform, cmake, installShellFiles, commit ? "" }:

let
  manifest = lib.importTOML ../../Cargo.toml;
in
rustPlatform.buildRustPackage {
  pname = "model-gateway";
  inherit (manifest.workspace.package) version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--bin" "model-gateway" ];
  # zlib-ng is compiled with cmake, which must not configure the package itself.
  nativeBuildInputs = [ cmake installShellFiles ];
  dontUseCmakeConfigure = true;
  env.MODEL_GATEWAY_COMMIT = commit;
  # The tests open sockets and start processes of the system; `make test` runs them.
  doCheck = false;
  postInstall = ''
    mkdir man
    $out/bin/model-gateway man man
    installManPage man/*
    for shell in bash fish zsh; do
      installShellCompletion --cmd model-gateway --$shell <($out/bin/model-gateway completions $shell)
    done
    install -D -m 0644 -t $out/share/model-gateway/schema conf/schema/*.json
    install -D -m 0644 -t $out/share/model-gateway conf/prices.toml docs/openapi.json
    install -D -m 0644 -t $out/share/model-gateway/prometheus packaging/prometheus/rules.yml
    install -D -m 0644 -t $out/share/model-gateway/grafana packaging/grafana/model-gateway.json
  '';
  meta = {
    inherit (manifest.package) description;
    license = lib.licenses.asl20;
    mainProgram = "model-gateway";
    platforms = lib.platforms.linux;
  };
}
