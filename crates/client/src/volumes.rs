//! Volumes that outlive sandboxes, their snapshots and their files.

use burrow_api::{
    CreateVolume, CreateVolumeSnapshot, FileEntry, FileList, RestoreVolume, Volume, VolumeSnapshot,
};
use http::Method;

use crate::body::{ByteStream, UploadBody};
use crate::client::Call;
use crate::files::upload_call;
use crate::url::Path;
use crate::{Client, ClientError};

pub(crate) fn volume_path(volume: &str) -> Path {
    Path::new("/v1/volumes").part(volume)
}

impl Client {
    pub async fn create_volume(&self, request: &CreateVolume) -> Result<Volume, ClientError> {
        Ok(self.create(Path::new("/v1/volumes"), request).await?.1)
    }

    pub async fn volumes(&self) -> Result<Vec<Volume>, ClientError> {
        self.all_pages(Path::new("/v1/volumes")).await
    }

    /// By id or name, with the sandboxes to which it is attached.
    pub async fn volume(&self, volume: &str) -> Result<Volume, ClientError> {
        self.get(volume_path(volume)).await
    }

    /// Refused while it is attached to a sandbox. Refused if it has snapshots, unless `snapshots` deletes them too.
    pub async fn delete_volume(&self, volume: &str, snapshots: bool) -> Result<(), ClientError> {
        self.send_no_content(Call::new(Method::DELETE, volume_path(volume).flag("snapshots", snapshots)))
            .await
    }

    pub async fn snapshot_volume(
        &self,
        volume: &str,
        request: &CreateVolumeSnapshot,
    ) -> Result<VolumeSnapshot, ClientError> {
        Ok(self.create(volume_path(volume).fixed("snapshots"), request).await?.1)
    }

    /// Newest first.
    pub async fn volume_snapshots(&self, volume: &str) -> Result<Vec<VolumeSnapshot>, ClientError> {
        self.all_pages(volume_path(volume).fixed("snapshots")).await
    }

    pub async fn delete_volume_snapshot(&self, volume: &str, snapshot: &str) -> Result<(), ClientError> {
        let route = volume_path(volume).fixed("snapshots").part(snapshot);
        self.send_no_content(Call::new(Method::DELETE, route)).await
    }

    /// Restores one of its snapshots. Refused unless all sandboxes to which it is attached are stopped.
    pub async fn restore_volume(&self, volume: &str, request: &RestoreVolume) -> Result<Volume, ClientError> {
        self.send_json(Method::POST, volume_path(volume).fixed("restore"), request).await
    }

    /// A file of a volume, streamed in constant memory.
    pub async fn read_volume_file(&self, volume: &str, path: &str) -> Result<ByteStream, ClientError> {
        let route = volume_path(volume).fixed("files").query("path", path);
        let shown = route.shown();
        let response = self.send(Call::new(Method::GET, route)).await?;
        Ok(ByteStream::new(response.into_body(), shown))
    }

    /// Writes a file; `parents` creates missing parent directories.
    pub async fn write_volume_file(
        &self,
        volume: &str,
        path: &str,
        parents: bool,
        body: UploadBody,
    ) -> Result<FileEntry, ClientError> {
        let route = volume_path(volume).fixed("files").query("path", path).flag("parents", parents);
        self.send_upload(upload_call(Method::PUT, route, body)).await
    }

    /// Removes a file, or a directory with its content.
    pub async fn remove_volume_file(&self, volume: &str, path: &str) -> Result<(), ClientError> {
        let route = volume_path(volume).fixed("files").query("path", path);
        self.send_no_content(Call::new(Method::DELETE, route)).await
    }

    /// A `depth` of 1 lists only the directory itself.
    pub async fn list_volume_files(
        &self,
        volume: &str,
        path: &str,
        depth: u32,
    ) -> Result<FileList, ClientError> {
        let route = volume_path(volume).fixed("files").fixed("list");
        self.get(route.query("path", path).query("depth", &depth.to_string())).await
    }
}
