//! Unix sockets that only root may use.
//!
//! The file's mode keeps others out; the peer's credentials keep out a descriptor that was passed on.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use tokio::net::UnixStream;

/// Listens at `path`, whose directory is made; a file that an ended agent left is replaced: two agents cannot have one lock.
/// The socket never blocks.
///
/// # Errors
/// What the file system says.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether root is at the other end.
#[must_use]
pub fn is_root(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0)
}
