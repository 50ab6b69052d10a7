//! Steps of Dockerfiles: copies from the context, from other stages and from images; commands with mounts.
//!
//! A cache is an ordinary volume, mounted while the command runs: it is neither part of the layer nor of its key. A bind mount
//! is a copy that is removed after the command, so it is refused where the image has files already.

use std::path::PathBuf;

use burrow_disks::UID_SHIFT;
use burrow_guest::protocol::{FileEntry, FileKind, ListFiles, Request};
use burrow_images::recipe::{
    CacheMount, PackOptions, RunCommand, RunMount, SourceTree, Step, TreeCopy, TreeFiles,
};
use burrow_images::{Digest, Hasher, ImageError};
use burrow_model::{ImageConfig, MountMode, MountPath, Name, TenantId, VolumeMount, check_mounts};

use super::ImageProgressSink;
use super::build::{Build, BuildState, no_context};
use super::finish::blocking;
use super::layer_locks::LayerWriteLock;
use super::step::{PATH, StepSandbox, exec, is_directory};
use crate::{Engine, EngineError, ObjectKind, VolumeOptions};

/// The files that a step takes from other trees.
#[derive(Debug, Default)]
pub(super) struct StepTrees {
    /// One for a copy; one for each bind mount of a command, in order.
    sources: Vec<TreeSource>,
}

/// Files of one tree.
#[derive(Clone, Debug)]
pub(super) struct TreeSource {
    files: TreeFiles,
    /// Whether the owners of the files are kept: those in the context have none.
    has_owners: bool,
    digest: Digest,
}

impl StepTrees {
    /// Part of the key of the step.
    pub(super) fn digest(&self) -> Option<Digest> {
        if self.sources.is_empty() {
            return None;
        }
        let mut hasher = Hasher::default();
        self.sources.iter().for_each(|source| hasher.update(source.digest.as_bytes()));
        Some(hasher.finish())
    }

    /// The files of a copy.
    pub(super) fn copy(&self) -> Option<&TreeSource> {
        self.sources.first()
    }
}

impl Build<'_> {
    /// Finds the files that a step takes from other trees.
    pub(super) async fn trees(&self, done: &[BuildState], step: &Step) -> Result<StepTrees, EngineError> {
        let mut sources = Vec::new();
        if let Step::CopyTree(copy) = step {
            sources.push(self.tree_source(done, &copy.tree, copy.sources.clone()).await?);
        }
        if let Step::Command(RunCommand { mounts, .. }) = step {
            for mount in mounts {
                if let RunMount::Bind { tree, source, .. } = mount {
                    sources.push(self.tree_source(done, tree, vec![source.clone()]).await?);
                }
            }
        }
        Ok(StepTrees { sources })
    }

    async fn tree_source(
        &self,
        done: &[BuildState],
        tree: &SourceTree,
        sources: Vec<String>,
    ) -> Result<TreeSource, EngineError> {
        // A step that only writes files of the Dockerfile needs no context.
        let of_context = *tree == SourceTree::Context;
        let (root, key) = match tree {
            SourceTree::Context => match &self.options.context {
                Some(context) => (context.files(), None),
                None if sources.is_empty() => (PathBuf::from("/"), None),
                None => return Err(no_context()),
            },
            SourceTree::Stage(index) => self.root(&done[*index]).await?,
            SourceTree::Image(name) => {
                let image = self.engine.copied_image(self.tenant, name).await?;
                self.root(&self.of_image(&image).await?).await?
            }
        };
        blocking(move || {
            let files = TreeFiles::find(&root, &sources)?;
            // Without changes, a stage has the same files: hashing them is not necessary.
            let digest = match key {
                Some(key) => key,
                None => files.digest()?,
            };
            Ok(TreeSource { files, has_owners: !of_context, digest })
        })
        .await
    }

    async fn root(&self, state: &BuildState) -> Result<(PathBuf, Option<Digest>), EngineError> {
        let root = self.engine.shared.seams.disks.locate((&state.files).into()).await?;
        Ok((root, Some(state.key.0)))
    }
}

/// The caches of a step: no other step uses them meanwhile.
#[derive(Debug, Default)]
pub(super) struct CacheLocks {
    pub(super) mounts: Vec<VolumeMount>,
    /// Released after the sandbox of the step was removed.
    locks: Vec<LayerWriteLock>,
}

impl CacheLocks {
    /// Waits for the caches, and creates missing ones.
    pub(super) async fn acquire(
        engine: &Engine,
        tenant: &TenantId,
        step: &Step,
        disk_mib: u32,
    ) -> Result<Self, EngineError> {
        let Step::Command(RunCommand { mounts, .. }) = step else { return Ok(Self::default()) };
        let mut caches: Vec<(Name, &CacheMount)> = Vec::new();
        for mount in mounts {
            if let RunMount::Cache(cache) = mount {
                caches.push((volume_name(&cache.id), cache));
            }
        }
        // In one order, so that two steps never wait for each other.
        caches.sort_by(|one, other| one.0.cmp(&other.0));
        let mut acquired = Self::default();
        for (name, cache) in caches {
            let path: MountPath =
                cache.target.parse().map_err(|error| refused(format!("RUN --mount: {error}")))?;
            if acquired.mounts.iter().all(|mount| mount.name != name) {
                let key = format!("cache:{name}");
                acquired.locks.push(engine.shared.images.locks.lock_exclusive(tenant, &key).await);
            }
            let volume = match engine.find_volume(tenant, name.as_str()).await {
                Err(EngineError::NotFound { kind: ObjectKind::Volume, .. }) => {
                    let options = VolumeOptions { name: name.clone(), disk_mib, from: None };
                    engine.create_volume(tenant, options).await?
                }
                found => found?,
            };
            acquired.mounts.push(VolumeMount { volume: volume.id, name, path, mode: MountMode::Rw });
        }
        check_mounts(&acquired.mounts).map_err(|error| refused(format!("RUN --mount: {error}")))?;
        Ok(acquired)
    }
}

fn refused(reason: String) -> EngineError {
    ImageError::Recipe { line: None, reason }.into()
}

/// The name of a cache's volume: readable, and unique by a hash.
fn volume_name(id: &str) -> Name {
    const READABLE_MAX: usize = 32;
    let words: Vec<String> = id
        .to_ascii_lowercase()
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let readable: String = words.join("-").chars().take(READABLE_MAX).collect();
    let hash: String = Digest::of(id.as_bytes()).hex().chars().take(8).collect();
    let name = format!("build-cache-{readable}-{hash}").replace("--", "-");
    name.parse().expect("it consists of letters, digits and single hyphens")
}

/// A bind mount that was made, and is removed after the command.
#[derive(Debug)]
struct TemporaryFiles {
    path: String,
    /// The directory that existed before, which was empty.
    was: Option<FileEntry>,
}

impl StepSandbox<'_> {
    /// Copies files from a tree.
    pub(super) async fn copy_tree(&self, copy: &TreeCopy, source: &TreeSource) -> Result<(), EngineError> {
        let (files, unpack) = (source.files.clone(), copy.unpack);
        let archive = blocking(move || Ok(unpack && files.is_archive()?)).await?;
        let only_inline = copy.sources.is_empty() && copy.files.len() == 1;
        let own_name = match source.files.single_file() {
            Some(name) if copy.files.is_empty() => Some(name.to_owned()),
            Some(_) => None,
            None => copy.files.first().filter(|_| only_inline).map(|file| file.name.clone()),
        };
        let renames = own_name.is_some()
            && !archive
            && !copy.to.ends_with('/')
            && !is_directory(&self.guest().await?, copy.to.clone()).await;
        let (into, name) = match copy.to.rsplit_once('/') {
            Some((above, name)) if renames => (above, Some(name.to_owned())),
            Some(_) | None => (copy.to.trim_end_matches('/'), None),
        };
        let into = if into.is_empty() { "/" } else { into }.to_owned();
        self.make_directory(&into, copy.owner.clone()).await?;
        let keeps = source.has_owners || archive;
        let owner = copy.owner.clone().or_else(|| (!keeps).then(|| "0:0".to_owned()));
        let (files, inline, mode) = (source.files.clone(), copy.files.clone(), copy.mode);
        let uid_shift = source.has_owners.then_some(UID_SHIFT);
        self.unpack(into, owner, move |out| {
            let options = PackOptions { name: name.as_deref(), mode, uid_shift, unpack, inline: &inline };
            files.pack(out, &options)
        })
        .await
    }

    /// Runs a command with its mounts. Caches are mounted already.
    pub(super) async fn command(
        &self,
        command: &RunCommand,
        trees: &StepTrees,
        config: &ImageConfig,
        tell: &ImageProgressSink,
    ) -> Result<(), EngineError> {
        let mut env = config.env.clone();
        env.extend(command.arguments.clone());
        env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        let workdir = config.workdir.clone().or_else(|| Some("/".to_owned()));
        if let Some(workdir) = &config.workdir {
            self.make_directory(workdir, config.user.clone()).await?;
        }
        let mut made = Vec::new();
        let mut sources = trees.sources.iter();
        for mount in &command.mounts {
            match mount {
                RunMount::Cache(cache) => self.own_cache(cache, tell).await?,
                RunMount::Bind { target, .. } => {
                    let source = sources.next().expect("each bind mount has its source");
                    made.push(self.bind(target, Some(source)).await?);
                }
                RunMount::Tmpfs { target } => made.push(self.bind(target, None).await?),
            }
        }
        let step = command.argv.join(" ");
        self.exec(&step, exec(command.argv.clone(), env, workdir, config.user.clone()), tell).await?;
        for files in made.into_iter().rev() {
            self.unbind(files).await?;
        }
        Ok(())
    }

    /// Gives a cache to the user that its mount names.
    async fn own_cache(&self, cache: &CacheMount, tell: &ImageProgressSink) -> Result<(), EngineError> {
        let CacheMount { target, uid, gid, mode, .. } = cache;
        if (*uid, *gid) != (0, 0) {
            let argv = ["chown", &format!("{uid}:{gid}"), target].map(str::to_owned).to_vec();
            let env = [("PATH".to_owned(), PATH.to_owned())].into();
            let options = exec(argv, env, Some("/".to_owned()), Some("0:0".to_owned()));
            self.exec(&format!("chown of the cache `{target}`"), options, tell).await?;
        }
        let request = Request::ChangeMode { path: target.clone(), mode: *mode };
        self.guest().await?.call::<FileEntry>(&request).await.map(drop)
    }

    async fn bind(&self, target: &str, source: Option<&TreeSource>) -> Result<TemporaryFiles, EngineError> {
        let guest = self.guest().await?;
        let path = target.to_owned();
        let was = guest.call::<FileEntry>(&Request::Stat { path: path.clone(), follow: false }).await.ok();
        if let Some(entry) = &was {
            let list = Request::List(ListFiles { path: path.clone(), depth: 1, entries_max: 1 });
            let listed = guest.call::<Vec<FileEntry>>(&list).await;
            let empty = entry.kind == FileKind::Directory && listed.is_ok_and(|entries| entries.is_empty());
            if !empty {
                let target = crate::shown::shown(target);
                return Err(refused(format!(
                    "RUN --mount: `{target}` exists in the image, and only a cache can hide files: use another target"
                )));
            }
        }
        let single = source.is_some_and(|source| source.files.single_file().is_some());
        let (into, name) = match target.rsplit_once('/') {
            Some((above, name)) if single => {
                (if above.is_empty() { "/" } else { above }, Some(name.to_owned()))
            }
            Some(_) | None => (target, None),
        };
        if single && was.is_some() {
            return Err(refused(format!("RUN --mount: `{}` is a directory", crate::shown::shown(target))));
        }
        self.make_directory(into, None).await?;
        if let Some(source) = source {
            let (files, owner) = (source.files.clone(), (!source.has_owners).then(|| "0:0".to_owned()));
            let uid_shift = source.has_owners.then_some(UID_SHIFT);
            let pack = move |out| {
                let options =
                    PackOptions { name: name.as_deref(), mode: None, uid_shift, unpack: false, inline: &[] };
                files.pack(out, &options)
            };
            self.unpack(into.to_owned(), owner, pack).await?;
        }
        Ok(TemporaryFiles { path, was })
    }

    async fn unbind(&self, files: TemporaryFiles) -> Result<(), EngineError> {
        let guest = self.guest().await?;
        let TemporaryFiles { path, was } = files;
        guest.call::<()>(&Request::Remove { path: path.clone(), recursive: true }).await?;
        if let Some(was) = was {
            let user = Some(format!("{}:{}", was.uid, was.gid));
            let request = Request::MakeDir { path, parents: false, mode: Some(was.mode), user };
            guest.call::<FileEntry>(&request).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_of_a_cache_is_the_name_of_a_volume() {
        assert!(volume_name("/root/.cache/pip").as_str().starts_with("build-cache-root-cache-pip-"));
        let ids = ["", "/", "äöü", "a b", &"x/".repeat(500), "$(id)", "-", "A", "a"];
        let names: std::collections::BTreeSet<Name> = ids.iter().map(|id| volume_name(id)).collect();
        assert_eq!(names.len(), ids.len());
    }
}
