//! The only program in the machines of these tests. The tests compile it, statically, with only the standard library.

use std::fs;
use std::io::{Read, Write};
use std::time::Duration;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        // Random bytes from the kernel.
        ["random"] => {
            let mut bytes = [0; 32];
            fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
            println!("{bytes:02x?}");
        }
        // State that a dump and a restore must not disturb: a number in RAM, and a copy in a file.
        ["count", path] => {
            let mark = std::process::id();
            for number in 0u64.. {
                let fresh = format!("{path}.new");
                fs::write(&fresh, format!("{number} {mark}")).unwrap();
                fs::rename(&fresh, path).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        ["cat", ref paths @ ..] => {
            for path in paths {
                print!("{}", fs::read_to_string(path).unwrap_or_else(|error| format!("{error}\n")));
            }
        }
        ["write", path, text] => match fs::write(path, text) {
            Ok(()) => println!("ok"),
            Err(error) => println!("{error}"),
        },
        // Writes this many bytes to a file, or until there is no space left.
        ["fill", path, mib] => {
            let mut file = fs::File::create(path).unwrap();
            let wrote = (0..mib.parse::<u32>().unwrap())
                .try_for_each(|_| file.write_all(&[1; 1 << 20]))
                .and_then(|()| file.sync_all());
            match wrote {
                Ok(()) => println!("ok"),
                Err(error) => println!("{error}"),
            }
        }
        // The same, without waiting until it is on the disk.
        ["scribble", path, mib] => {
            let mut file = fs::File::create(path).unwrap();
            match (0..mib.parse::<u32>().unwrap()).try_for_each(|_| file.write_all(&[1; 1 << 20])) {
                Ok(()) => println!("ok"),
                Err(error) => println!("{error}"),
            }
        }
        ["now"] => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            println!("{}", now.as_secs());
        }
        // As many children as possible, each waiting forever.
        ["forks"] => {
            let mut children = 0;
            while std::process::Command::new("/inside").arg("sleep").spawn().is_ok() {
                children += 1;
            }
            println!("{children}");
        }
        ["sleep"] => loop {
            std::thread::sleep(Duration::from_secs(1000));
        },
        ref other => println!("what is {other:?}?"),
    }
}
