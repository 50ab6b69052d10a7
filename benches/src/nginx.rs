//! The peer: nginx as a reverse proxy to the same server, in the same namespace from which the daemon connects.
//!
//! It runs in the sandbox's gateway namespace, the only one from which the sandbox can be reached, and listens on that
//! namespace's loopback; the client's sockets are created there too. Its settings are those of a fast proxy: a worker per
//! core, connections kept alive on both sides, no log.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::BenchError;

const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
const LISTEN: &str = "127.0.0.1:18080";

#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    namespace: PathBuf,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Proxies to `upstream`, from inside of `namespace`.
    pub(crate) fn start(program: &Path, namespace: &Path, upstream: &str) -> Result<Self, BenchError> {
        let folder = tempfile::tempdir().map_err(BenchError::io("make a folder for", "nginx"))?;
        let at = |name: &str| folder.path().join(name);
        let config = at("nginx.conf");
        let text = format!(
            "worker_processes auto;\ndaemon off;\npid {0}/pid;\nerror_log {0}/error.log;\nuser root;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  keepalive_requests 1000000000;\n\
             client_body_temp_path {0}/body;\n  proxy_temp_path {0}/proxy;\n  fastcgi_temp_path {0}/fastcgi;\n\
             uwsgi_temp_path {0}/uwsgi;\n  scgi_temp_path {0}/scgi;\n\
             upstream inside {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}\n\
             server {{ listen {LISTEN}; location / {{\n    proxy_pass http://inside;\n    proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\";\n    proxy_set_header Host $http_host;\n\
             proxy_set_header X-Forwarded-For $remote_addr;\n  }} }}\n}}\n",
            folder.path().display()
        );
        fs::write(&config, text).map_err(BenchError::io("write", config.display()))?;
        let child = Command::new("nsenter")
            .arg(format!("--net={}", namespace.display()))
            .arg(program)
            .arg("-e")
            .arg(at("error.log"))
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .spawn()
            .map_err(BenchError::io("start", program.display()))?;
        let mut nginx = Self { child, namespace: namespace.to_owned(), _folder: folder };
        nginx.wait_until_listening()?;
        Ok(nginx)
    }

    fn wait_until_listening(&mut self) -> Result<(), BenchError> {
        let deadline = Instant::now() + PATIENCE;
        while self.connect().is_err() {
            let ended = self.child.try_wait().map_err(BenchError::io("wait for", "nginx"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(BenchError::WrongAnswer { what: "nginx does not come up".to_owned() });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// A connection to it, created inside of the namespace.
    pub(crate) fn connect(&self) -> Result<std::net::TcpStream, BenchError> {
        let namespace = self.namespace.clone();
        // A separate thread, because it stays in that namespace.
        let connecting = std::thread::spawn(move || {
            let file = File::open(&namespace)?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            let address: SocketAddr = LISTEN.parse().expect("it is an address");
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(stream)
        });
        let connected = connecting.join().expect("connecting does not panic");
        connected.map_err(BenchError::io("connect to", "nginx"))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // Its master ends the workers; SIGKILL would leave them running.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
