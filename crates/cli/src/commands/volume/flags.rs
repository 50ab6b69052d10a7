//! `--volume NAME:/path[:ro]`, for commands that create or change a sandbox.

use burrow_api::{MountVolume, VolumeMode};
use clap::Args;

/// The volumes of a sandbox.
#[derive(Clone, Debug, Args)]
pub(crate) struct VolumeFlags {
    /// Volume to mount, e.g. data:/data or models:/models:ro; may be repeated
    #[arg(long = "volume", value_name = "NAME:PATH[:ro]", value_parser = mount)]
    pub(crate) volumes: Vec<MountVolume>,
}

/// `data:/data`, `data:/data:rw`, `data:/data:ro`.
fn mount(text: &str) -> Result<MountVolume, String> {
    let bad = || format!("`{text}` is not NAME:/path, NAME:/path:ro or NAME:/path:rw");
    let (name, place) = text.split_once(':').ok_or_else(bad)?;
    let (path, mode) = match place.rsplit_once(':') {
        Some((path, "ro")) => (path, VolumeMode::Ro),
        Some((path, "rw")) => (path, VolumeMode::Rw),
        Some(_) | None => (place, VolumeMode::Rw),
    };
    if name.is_empty() || !path.starts_with('/') {
        return Err(bad());
    }
    let path: burrow_model::MountPath =
        path.parse().map_err(|error: burrow_model::MountError| error.to_string())?;
    Ok(MountVolume { name: name.to_owned(), path: path.into(), mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &str, VolumeMode)>) {
        let found = mount(text).ok();
        let found = found.as_ref().map(|found| (found.name.as_str(), found.path.as_str(), found.mode));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn a_mount_is_a_name_a_path_and_a_mode() {
        check("data:/data", Some(("data", "/data", VolumeMode::Rw)));
        check("data:/data/:ro", Some(("data", "/data", VolumeMode::Ro)));
        check("data:/a:b:rw", Some(("data", "/a:b", VolumeMode::Rw)));
        check("data:/a:b", Some(("data", "/a:b", VolumeMode::Rw)));
        for bad in ["data", "data:", ":/data", "data:data", "data:/proc", "data:/", "data:/a/../b:ro"] {
            check(bad, None);
        }
    }
}
