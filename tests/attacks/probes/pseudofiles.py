# Walks /proc and /sys as seen from here, and says of the regular files:
#   writable PATH   opens for writing (nothing is written)
#   tells PATH      its text has one of the `words` or `texts` of the JSON file that is the first argument
#   read=N          how many were read
# With `few` as second argument only a few files that the host's root can read are tried: reading all of a real host's
# files takes long and may disturb devices.
import json, os, re, stat, sys

with open(sys.argv[1]) as file:
    wanted = json.load(file)
words, texts = wanted["words"], wanted["texts"]
few = sys.argv[2:] == ["few"]
needles = [re.escape(text) for text in texts] + [r"(?<![\w-])%s(?![\w-])" % re.escape(word) for word in words]
pattern = re.compile("|".join(needles))
own = "/proc/%d/" % os.getpid()
count = 0


def shown(path):
    for prefix in (own, "/proc/self/", "/proc/thread-self/"):
        if path.startswith(prefix):
            return "/proc/PID/" + path[len(prefix):]
    return path


def attempt(path):
    global count
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode):
        return
    # Root opens its own processes' files whatever their mode; without a permission in it, nothing can be written.
    if not shown(path).startswith("/proc/PID/") or status.st_mode & 0o222:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            print("writable", shown(path))
        except OSError:
            pass
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        data = b""
        while len(data) < 1 << 20:
            more = os.read(fd, 1 << 16)
            if not more:
                break
            data += more
        count += 1
        if pattern.search(data.decode("latin-1")):
            print("tells", shown(path))
    except OSError:
        pass
    finally:
        os.close(fd)


if few:
    for path in ("/proc/cmdline", "/proc/partitions", "/proc/swaps", "/proc/sys/kernel/core_pattern"):
        attempt(path)
else:
    for top in ("/proc", "/sys"):
        for folder, folders, files in os.walk(top):
            if folder == "/proc":
                # Of processes, this one stands for all.
                folders[:] = [name for name in folders if not name.isdigit()] + [str(os.getpid())]
            if folder == own.rstrip("/"):
                # The same files again, and this process's own memory and descriptors.
                folders[:] = [name for name in folders if name not in ("task", "fd", "fdinfo", "map_files", "cwd", "root")]
            for name in files:
                path = os.path.join(folder, name)
                # Its own memory: not text, and not the host's.
                if shown(path) not in ("/proc/PID/mem", "/proc/PID/pagemap"):
                    attempt(path)
print("read=%d" % count)
