//! Owners of the files that commands of root create: the gateway, which runs as another user, reads them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use crate::support::gateway::free_ports;
use crate::support::setup::Setup;

/// User and group of the gateway.
const USER: u32 = 65_534;

#[test]
fn files_that_commands_of_root_create_are_readable_for_the_gateway() {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("SKIPPED: only root can give files away");
        return;
    }
    // The folder is that of the gateway; or root's, with files that a group may read.
    for (folder_user, keys, mode) in [(USER, (USER, USER), 0o640), (0, (0, USER), 0o640), (0, (0, 0), 0o644)]
    {
        let folder = tempfile::tempdir().unwrap();
        let mut setup = Setup::new();
        setup.log = "[store]\nsqlite = \"state/state.db\"\n".to_owned();
        let conf = setup.write(folder.path(), &free_ports());
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("state")).unwrap();
        chown(path("state"), Some(USER), Some(USER)).unwrap();
        chown(folder.path(), Some(folder_user), Some(folder_user)).unwrap();
        chown(path("keys.toml"), Some(keys.0), Some(keys.1)).unwrap();
        std::fs::set_permissions(path("keys.toml"), std::fs::Permissions::from_mode(mode)).unwrap();
        for arguments in [
            &["admin", "create", "ops", "--role", "admin"][..],
            &["admin", "create", "second"],
            &["accounts", "create", "acme"],
            &["keys", "create", "signer", "--aws"],
        ] {
            let output = Command::new(env!("CARGO_BIN_EXE_model-gateway"))
                .args(arguments)
                .arg("--conf")
                .arg(&conf)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let secret = std::fs::read_dir(path("access-keys")).unwrap().next().unwrap().unwrap().path();
        let is_readable = |path: &std::path::Path| {
            let file = std::fs::metadata(path).unwrap();
            (file.uid() == USER && file.mode() & 0o400 != 0)
                || (file.gid() == USER && file.mode() & 0o040 != 0)
                || file.mode() & 0o004 != 0
        };
        let found = std::fs::metadata(path("admin.toml")).unwrap();
        assert_eq!(
            (found.uid(), found.gid(), found.mode() & 0o777),
            (keys.0, keys.1, mode),
            "like keys.toml"
        );
        for file in
            [path("admin.toml"), path("keys.toml"), path("state/state.db"), path("state/admin/audit.jsonl")]
        {
            assert!(is_readable(&file), "{}", file.display());
        }
        // A secret is never readable for all.
        assert_eq!(std::fs::metadata(&secret).unwrap().mode() & 0o007, 0);
        for path in [&*secret, secret.parent().unwrap()] {
            assert!(keys.1 != USER || is_readable(path), "{}", path.display());
        }
    }
}
