{
  description = "Gateway between applications and large language models";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      forAll = function: nixpkgs.lib.genAttrs systems (system: function nixpkgs.legacyPackages.${system});
    in
    {
      packages = forAll (pkgs: rec {
        model-gateway = pkgs.callPackage ./packaging/nix/package.nix {
          commit = self.shortRev or self.dirtyShortRev or "";
        };
        default = model-gateway;
      });
      nixosModules.default = import ./packaging/nix/module.nix self;
      checks = forAll (pkgs: { package = self.packages.${pkgs.system}.default; });
    };
}
