//! Files over SSH: sftp, scp, rsync and git, with their own programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Daemon, all_on_microvms, run};
use crate::ssh_client::{CONFIG, SshClient, noise, succeeded, text};

#[test]
fn sftp_and_scp_carry_files_as_the_sandbox_has_them() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let folder = client.folder.path();
    noise(&folder.join("noise"), 40);
    let before = fs::read(folder.join("noise")).unwrap();

    // Uploaded and downloaded by sftp, with names that contain special characters.
    let script = format!(
        "mkdir /srv/up\nput {0} '/srv/up/a file'\nls -l /srv/up\nrename '/srv/up/a file' /srv/up/b\nchmod 600 /srv/up/b\n\
         ln -s b /srv/up/link\nget /srv/up/link {0}.back\ndf /srv\nput {0} /srv/up/c\nrm /srv/up/c\n",
        folder.join("noise").display()
    );
    let batch = folder.join("batch");
    fs::write(&batch, script).unwrap();
    let output = client.program("sftp", &["-b", batch.to_str().unwrap(), "web@127.0.0.1"]).output().unwrap();
    let said = text(&succeeded(output).stdout);
    assert!(said.contains("a file") && said.contains("41943040"), "{said}");
    assert_eq!(fs::read(folder.join("noise.back")).unwrap(), before);
    assert_eq!(daemon.sh("web", "cd /srv/up; ls; stat -c %a b; readlink link"), "b\nlink\n600\nb");

    // By scp, which uses sftp in new clients; trees too.
    fs::create_dir_all(folder.join("tree/deep")).unwrap();
    fs::write(folder.join("tree/deep/file"), "deep").unwrap();
    let tree = folder.join("tree");
    succeeded(
        client.program("scp", &["-r", "-p", tree.to_str().unwrap(), "web@127.0.0.1:/srv/"]).output().unwrap(),
    );
    assert_eq!(daemon.sh("web", "cat /srv/tree/deep/file"), "deep");
    let back = folder.join("tree-back");
    let from = ["-r", "web@127.0.0.1:/srv/tree", back.to_str().unwrap()];
    succeeded(client.program("scp", &from).output().unwrap());
    assert_eq!(fs::read_to_string(back.join("deep/file")).unwrap(), "deep");
    // Clients older than sftp run the sandbox's own `scp`.
    let old =
        ["-O", "web@127.0.0.1:/srv/tree/deep/file", folder.join("old").to_str().unwrap()].map(str::to_owned);
    let old: Vec<&str> = old.iter().map(String::as_str).collect();
    succeeded(client.program("scp", &old).output().unwrap());
    assert_eq!(fs::read_to_string(folder.join("old")).unwrap(), "deep");

    // `..` ends at the sandbox's root, and the sandbox's permissions apply.
    let above = "get /../../../../../../etc/hostname above\nget /proc/self/root/etc/hostname root\n";
    fs::write(&batch, above).unwrap();
    let mut sftp = client.program("sftp", &["-b", batch.to_str().unwrap(), "web@127.0.0.1"]);
    succeeded(sftp.current_dir(folder).output().unwrap());
    for name in ["above", "root"] {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap().trim(), "web", "{name}");
    }
    fs::write(&batch, format!("put {} /.burrow/guest\n", batch.display())).unwrap();
    let refused = client.program("sftp", &["-b", batch.to_str().unwrap(), "web@127.0.0.1"]).output().unwrap();
    // A machine's own kernel reports that the program is being run.
    let words = if all_on_microvms() { "Failure" } else { "ermission denied" };
    assert!(!refused.status.success() && text(&refused.stderr).contains(words), "{refused:?}");
}

#[test]
fn git_and_rsync_work_over_ssh() {
    let daemon = Daemon::start_with(CONFIG);
    daemon.create("web");
    let client = SshClient::known(&daemon);
    let folder = client.folder.path();
    daemon.sh("web", "git init -q --bare -b main /srv/repo.git");

    let git = |at: &Path, arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(at).args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(arguments);
        command.env("GIT_SSH_COMMAND", client.as_line()).env("GIT_SSH_VARIANT", "ssh");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        run(command.stdin(Stdio::null()));
    };
    let (one, two) = (folder.join("one"), folder.join("two"));
    fs::create_dir(&one).unwrap();
    git(&one, &["init", "-q", "-b", "main"]);
    noise(&one.join("blob"), 4);
    git(&one, &["add", "."]);
    git(&one, &["commit", "-q", "-m", "first"]);
    git(&one, &["push", "-q", "ssh://web@127.0.0.1/srv/repo.git", "main"]);
    git(folder, &["clone", "-q", "ssh://web@127.0.0.1/srv/repo.git", "two"]);
    assert_eq!(fs::read(one.join("blob")).unwrap(), fs::read(two.join("blob")).unwrap());

    fs::create_dir(folder.join("source")).unwrap();
    for number in 0..50 {
        fs::write(folder.join(format!("source/{number}")), format!("{number}\n").repeat(1000)).unwrap();
    }
    let rsync = |from: &str, to: &str| {
        let mut command = Command::new("rsync");
        command.args(["-a", "-e", &client.as_line(), from, to]);
        succeeded(command.stdin(Stdio::null()).output().unwrap())
    };
    let source = format!("{}/", folder.join("source").display());
    rsync(&source, "web@127.0.0.1:/srv/copy/");
    assert_eq!(daemon.sh("web", "ls /srv/copy | wc -l; cat /srv/copy/* | wc -l"), "50\n50000");
    daemon.sh("web", "echo changed > /srv/copy/7");
    rsync("web@127.0.0.1:/srv/copy/", &source);
    assert_eq!(fs::read_to_string(folder.join("source/7")).unwrap(), "changed\n");
}
