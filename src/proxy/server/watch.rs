//! Changes of configuration files (`--watch`), found by comparing their metadata once a second.
//!
//! Comparing needs no support of the file system: it works on network file systems and in containers, where notifications
//! get lost, and sees every way to replace a file: writing in place, renaming over it, and changing a symbolic link on
//! the way, as Kubernetes does. A change counts when nothing has changed for one more interval.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(1);

/// Changes of configuration files. Dropping it ends the comparisons.
pub(crate) struct FileChanges(Option<watch::Receiver<u64>>);

/// Metadata of a file: device, inode, size, and the times of the last modification and change. `None` if there is none.
type FileState = Option<[i64; 7]>;

impl FileChanges {
    /// Watches nothing.
    pub(crate) fn none() -> Self {
        FileChanges(None)
    }

    /// Watches the files that `files` lists for changes from now on, and logs changes of `settings`, which are not applied.
    /// `files` is called here, and for each comparison on a blocking thread.
    pub(crate) fn watch(settings: PathBuf, files: impl Fn() -> Vec<PathBuf> + Send + Sync + 'static) -> Self {
        let (sender, receiver) = watch::channel(0);
        let states = Arc::new(move || {
            let of = |path: PathBuf| {
                let state = state_of(&path);
                (path, state)
            };
            (state_of(&settings), files().into_iter().map(of).collect::<Vec<_>>())
        });
        // Here and not in the task, which may begin later than the first change.
        let (mut of_settings, mut applied) = states();
        tokio::spawn(async move {
            let mut changed = None;
            loop {
                tokio::select! {
                    () = tokio::time::sleep(INTERVAL) => {}
                    () = sender.closed() => return,
                }
                let states = states.clone();
                let Ok((settings, found)) = tokio::task::spawn_blocking(move || states()).await else {
                    return;
                };
                if std::mem::replace(&mut of_settings, settings) != settings {
                    tracing::warn!(
                        "gateway.toml has changed; it takes effect with the next start or upgrade"
                    );
                }
                if applied == found {
                    changed = None;
                } else if changed.as_ref() == Some(&found) {
                    (applied, changed) = (found, None);
                    sender.send_modify(|count| *count += 1);
                } else {
                    changed = Some(found);
                }
            }
        });
        FileChanges(Some(receiver))
    }

    /// Resolves after a change that has come to rest. Never resolves if nothing is watched. Safe to cancel.
    pub(crate) async fn changed(&mut self) {
        if let Some(receiver) = &mut self.0
            && receiver.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

fn state_of(path: &Path) -> FileState {
    let metadata = std::fs::metadata(path).ok()?;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Some([
        signed(metadata.dev()),
        signed(metadata.ino()),
        signed(metadata.size()),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `change` once the files were compared for the first time, and waits until it is noticed.
    async fn assert_noticed(file: &Path, change: impl FnOnce()) {
        let compared = Arc::new(tokio::sync::Notify::new());
        let (watched, notify) = (file.to_owned(), compared.clone());
        let mut changes = FileChanges::watch(PathBuf::from("/nowhere"), move || {
            notify.notify_one();
            vec![watched.clone()]
        });
        compared.notified().await;
        // The first comparison is complete when the second one begins.
        compared.notified().await;
        change();
        tokio::time::timeout(Duration::from_secs(60), changes.changed()).await.unwrap();
    }

    #[tokio::test]
    async fn file_that_is_replaced_in_any_way_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("a"), "1").unwrap();
        assert_noticed(&path("a"), || std::fs::write(path("a"), "2").unwrap()).await;
        assert_noticed(&path("a"), || {
            std::fs::write(path("b"), "2").unwrap();
            std::fs::rename(path("b"), path("a")).unwrap();
        })
        .await;
        // A ConfigMap in Kubernetes: the file is a link into a folder, which is a link that is replaced.
        for version in ["v1", "v2"] {
            std::fs::create_dir(path(version)).unwrap();
            std::fs::write(path(version).join("file"), "same").unwrap();
        }
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, path(name)).unwrap();
        link("v1", "..data");
        link("..data/file", "file");
        assert_noticed(&path("file"), || {
            link("v2", "..new");
            std::fs::rename(path("..new"), path("..data")).unwrap();
        })
        .await;
        assert_noticed(&path("a"), || std::fs::remove_file(path("a")).unwrap()).await;
        assert_noticed(&path("a"), || std::fs::write(path("a"), "").unwrap()).await;
    }
}
