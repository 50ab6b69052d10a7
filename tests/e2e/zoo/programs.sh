#!/bin/bash
# The table of the zoo: programs that people run in sandboxes. This file is copied into each and run as `zoo.sh NAME PART`.
#
#   NAME_start   becomes the program, in the background of the sandbox
#   NAME_load    works with it for ever, over connections that stay open; ends when an answer is wrong or missing. Optional
#   NAME_check   succeeds when the program works and has lost nothing; at the beginning it is asked until it does
#
# Before each program: the packages it needs. Driver and result are in mod.rs, which also reads those lines.
#
# packages of all: procps curl netcat-openbsd
set -u
export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
mkdir -p /srv/zoo && cd /srv/zoo || exit 1

# talk PORT REQUEST EXPECTED...: sends and receives over one TCP connection. {n} is a number that grows with each round.
talk() {
    exec python3 - "$@" <<'PY'
import socket, sys, time
port, steps = int(sys.argv[1]), sys.argv[2:]
decode = lambda text, n: text.encode().decode("unicode_escape").replace("{n}", str(n)).encode()
peer = socket.create_connection(("127.0.0.1", port))
peer.settimeout(120)
for n in range(1, 1 << 60):
    for request, expected in zip(steps[::2], steps[1::2]):
        request, expected = decode(request, n), decode(expected, n)
        peer.sendall(request)
        heard = b""
        while expected not in heard or not heard.endswith(b"\n"):
            part = peer.recv(65536)
            if not part:
                sys.exit(f"the connection ended: {heard!r}")
            heard += part
    open("count", "w").write(str(n))
    time.sleep(0.02)
PY
}

# converse COMMAND REQUEST EXPECTED: the same with the standard input and output of a client that stays.
converse() {
    exec python3 - "$@" <<'PY'
import subprocess, sys, time
command, request, expected = sys.argv[1:]
client = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
for n in range(1, 1 << 60):
    client.stdin.write(request.replace("\\n", "\n").replace("{n}", str(n)))
    client.stdin.flush()
    heard = client.stdout.readline()
    if heard.strip() != expected.replace("{n}", str(n)):
        sys.exit(f"{n}: {heard!r}")
    open("count", "w").write(str(n))
    time.sleep(0.02)
PY
}

# web PORT PATH TEXT: requests over one kept connection.
web() {
    exec python3 - "$@" <<'PY'
import http.client, sys, time
port, path, text = sys.argv[1:]
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=120)
for n in range(1, 1 << 60):
    connection.request("GET", path.replace("{n}", str(n)))
    answer = connection.getresponse()
    body = answer.read().decode()
    if answer.status != 200 or text.replace("{n}", str(n)) not in body:
        sys.exit(f"{answer.status} {body!r}")
    open("count", "w").write(str(n))
    time.sleep(0.02)
PY
}

# The load goes on: its count grows.
moves() {
    local before now
    before=$(cat count 2>/dev/null || echo 0)
    for _ in $(seq 3000); do
        now=$(cat count 2>/dev/null || echo 0)
        [ "${now:-0}" -gt "${before:-0}" ] && return 0
        sleep 0.1
    done
    echo "the load stands still at $before" >&2
    return 1
}

site() { mkdir -p www && echo 'hello from the zoo' > www/index.html; }
backend() { site; python3 -m http.server -d www --bind 127.0.0.1 8099 2>/dev/null & }

# packages of postgres: postgresql
postgres_bin() { echo /usr/lib/postgresql/*/bin; }
postgres_start() {
    install -d -o postgres pg run
    runuser -u postgres -- "$(postgres_bin)/initdb" -D pg/data -A trust > /dev/null
    exec runuser -u postgres -- "$(postgres_bin)/postgres" -D pg/data -c listen_addresses=127.0.0.1 -c unix_socket_directories=/tmp
}
postgres_load() {
    until psql -h 127.0.0.1 -U postgres -qAtXc 'select 1' 2>/dev/null; do sleep 0.2; done
    "$(postgres_bin)/pgbench" -h 127.0.0.1 -U postgres -q -i postgres && touch loaded
    exec "$(postgres_bin)/pgbench" -h 127.0.0.1 -U postgres -n -c 4 -R 100 -T 100000 postgres
}
postgres_check() {
    [ -e loaded ] && [ "$(psql -h 127.0.0.1 -U postgres -qAtXc 'select (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers) and
        (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history) and (select count(*) from pgbench_history) > 0')" = t ]
}

# packages of mariadb: mariadb-server
mariadb_start() {
    install -d -o mysql db /run/mysqld
    mariadb-install-db --user=mysql --datadir=/srv/zoo/db > /dev/null 2>&1
    exec mariadbd --no-defaults --user=mysql --datadir=/srv/zoo/db --socket=/run/mysqld/mysqld.sock --bind-address=127.0.0.1
}
mariadb_load() {
    until mariadb -e 'create database if not exists zoo; create table if not exists zoo.t (n int) engine=innodb' 2>/dev/null; do sleep 0.2; done
    converse 'mariadb -N -B --unbuffered zoo' 'insert into t values ({n}); select max(n) from t;\n' '{n}'
}
mariadb_check() { moves && mariadb -N -e 'check table zoo.t' | grep -q OK && [ "$(mariadb -N -e 'select count(*) = max(n) from zoo.t')" = 1 ]; }

# packages of redis: redis-server
redis_start() { exec redis-server --dir /srv/zoo --port 6379 --appendonly yes --appendfsync always --save ''; }
redis_load() { until redis-cli ping; do sleep 0.2; done; talk 6379 'SET k {n}\r\n' '+OK' 'GET k\r\n' '{n}\r\n' 'RPUSH l {n}\r\n' ':{n}\r\n'; }
redis_check() { moves && [ "$(redis-cli lrange l -1 -1)" -ge 1 ]; }

sqlite_start() {
    exec python3 - <<'PY'
import sqlite3, time
db = sqlite3.connect("zoo.db", isolation_level=None)
db.execute("pragma journal_mode=wal"); db.execute("pragma synchronous=full")
db.execute("create table if not exists t (n integer primary key, twice integer)")
for n in range(1, 1 << 60):
    db.execute("begin"); db.execute("insert into t values (?, ?)", (n, 2 * n)); db.execute("commit")
    assert db.execute("select count(*), max(n) from t").fetchone() == (n, n)
    open("count", "w").write(str(n)); time.sleep(0.01)
PY
}
sqlite_check() {
    moves && python3 -c '
import sqlite3
db = sqlite3.connect("zoo.db", timeout=60)
assert db.execute("pragma integrity_check").fetchone() == ("ok",)
assert db.execute("select count(*) = max(n) and sum(twice) = 2 * sum(n) from t").fetchone() == (1,)'
}

# packages of nginx: nginx-light
nginx_start() {
    site
    head -c 30000000 /dev/urandom > www/large
    sha256sum < www/large > sum
    printf 'daemon off; pid /srv/zoo/pid; error_log stderr; worker_processes 2; events {} http { access_log off; server { listen 127.0.0.1:8080; root /srv/zoo/www; } }' > conf
    chmod -R a+rX .
    exec nginx -c /srv/zoo/conf
}
# A slow reader: each transfer lasts over several steps of the test.
nginx_load() {
    until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done
    n=0
    while [ "$(curl -fsS --limit-rate 2M http://127.0.0.1:8080/large | sha256sum)" = "$(cat sum)" ]; do n=$((n + 1)); echo $n > transfers; done
    exit 1
}
nginx_check() { curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of apache: apache2
apache_start() {
    site; chmod -R a+rX .
    cat > conf <<'CONF'
ServerRoot /srv/zoo
ServerName localhost
PidFile /srv/zoo/pid
Listen 127.0.0.1:8080
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
User www-data
Group www-data
DocumentRoot /srv/zoo/www
ErrorLog /dev/stderr
MaxKeepAliveRequests 0
KeepAliveTimeout 100
CONF
    exec apache2 -f /srv/zoo/conf -D FOREGROUND
}
apache_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 / zoo; }
apache_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of haproxy: haproxy
haproxy_start() {
    backend
    cat > conf <<'CONF'
defaults
    mode http
    timeout client 100s
    timeout server 100s
    timeout connect 100s
listen zoo
    bind 127.0.0.1:8080
    server one 127.0.0.1:8099
CONF
    exec haproxy -f conf
}
haproxy_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 / zoo; }
haproxy_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of memcached: memcached
memcached_start() { exec memcached -u nobody -l 127.0.0.1 -p 11211 -m 32; }
memcached_load() { until nc -z 127.0.0.1 11211; do sleep 0.2; done; talk 11211 'set k{n} 0 0 4\r\nkept\r\n' 'STORED' 'get k1 k{n}\r\n' 'VALUE k{n} 0 4\r\nkept\r\nEND'; }
memcached_check() { moves; }

# packages of node: nodejs node-ws
node_start() {
    cat > server.js <<'JS'
const http = require('http'), ws = require('/usr/share/nodejs/ws');
let count = 0;
const server = http.createServer((request, response) => response.end(`zoo ${++count} ${request.url}`));
new ws.Server({ server }).on('connection', peer => peer.on('message', text => peer.send(`heard ${text}`)));
server.keepAliveTimeout = 0;
server.listen(8080, '127.0.0.1');
setInterval(() => { global.kept = Buffer.alloc(1 << 20) }, 50);
JS
    exec node server.js
}
node_load() {
    until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done
    cat > client.js <<'JS'
const ws = require('/usr/share/nodejs/ws'), fs = require('fs');
const peer = new ws('ws://127.0.0.1:8080');
let n = 0;
const next = () => peer.send(String(++n));
peer.on('open', next);
peer.on('message', text => {
  if (String(text) !== `heard ${n}`) process.exit(1);
  fs.writeFileSync('count', String(n));
  setTimeout(next, 20);
});
peer.on('close', () => process.exit(2));
peer.on('error', () => process.exit(3));
JS
    exec node client.js
}
node_check() { moves && curl -fsS http://127.0.0.1:8080/a | grep -q 'zoo [0-9]* /a'; }

# packages of java: default-jdk-headless
java_start() {
    cat > Zoo.java <<'JAVA'
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
public class Zoo {
    public static void main(String[] a) throws Exception {
        AtomicLong count = new AtomicLong();
        ConcurrentHashMap<Long, byte[]> kept = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newFixedThreadPool(8);
        for (int i = 0; i < 8; i++) pool.submit(() -> { while (true) { long n = count.incrementAndGet(); kept.put(n % 512, new byte[8192]); Thread.sleep(2); } });
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 0);
        server.createContext("/", exchange -> { byte[] text = ("zoo " + count.get() + exchange.getRequestURI()).getBytes(); exchange.sendResponseHeaders(200, text.length); exchange.getResponseBody().write(text); exchange.close(); });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
JAVA
    # Its server counts the time that was slept as idle, and ends connections that were idle for half a minute.
    exec java -Xmx256m -Dsun.net.httpserver.idleInterval=36000 Zoo.java
}
java_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 '/{n}' '/{n}'; }
java_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of go: golang-go
go_start() {
    mkdir -p src && cat > src/main.go <<'GO'
package main
import ("fmt"; "net/http"; "sync/atomic"; "time")
var count atomic.Int64
func main() {
	for i := 0; i < 100; i++ { go func() { for { kept := make([]byte, 4096); kept[0] = 1; count.Add(1); time.Sleep(5 * time.Millisecond) } }() }
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "zoo %d %s", count.Load(), r.URL.Path) })
	panic(http.ListenAndServe("127.0.0.1:8080", nil))
}
GO
    (cd src && CGO_ENABLED=0 GOFLAGS=-mod=mod GO111MODULE=off go build -o ../server main.go) || exit 1
    exec ./server
}
go_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 '/{n}' ' /{n}'; }
go_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

asyncio_start() {
    exec python3 - <<'PY'
import asyncio, concurrent.futures, threading, time
lock, total = threading.Lock(), 0
def thread():
    global total
    while True:
        with lock: total += 1
        time.sleep(0.001)
async def child():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    n = 0
    while True:
        n += 1
        process.stdin.write(b"%d\n" % n); await process.stdin.drain()
        assert await process.stdout.readline() == b"%d\n" % n
        open("count", "w").write(str(n)); await asyncio.sleep(0.01)
async def serve(reader, writer):
    while line := await reader.readline():
        writer.write(line); await writer.drain()
async def main():
    for _ in range(4): threading.Thread(target=thread, daemon=True).start()
    await asyncio.start_server(serve, "127.0.0.1", 8080)
    await asyncio.gather(child(), child(), child())
asyncio.run(main())
PY
}
asyncio_load() { until nc -z 127.0.0.1 8080; do sleep 0.2; done; mkdir -p client && cd client && talk 8080 'round {n}\n' 'round {n}\n'; }
asyncio_check() { moves && (cd client && moves); }

multiprocessing_start() {
    cat > pool.py <<'PY'
import multiprocessing, time
def work(n): time.sleep(0.005); return n * n
if __name__ == "__main__":
    with multiprocessing.Pool(6) as pool, multiprocessing.Manager() as manager:
        shared, round = manager.dict(), 0
        value = multiprocessing.Value("q", 0)
        while True:
            round += 1
            assert pool.map(work, range(30)) == [n * n for n in range(30)]
            shared["round"] = round
            with value.get_lock(): value.value += 1
            assert shared["round"] == round == value.value
            open("count", "w").write(str(round))
PY
    exec python3 pool.py
}
multiprocessing_check() { moves; }

# packages of tmux: tmux
tmux_start() {
    tmux -S /srv/zoo/tmux new-session -d -s zoo 'n=0; while sleep 0.02; do n=$((n + 1)); echo "line $n"; echo $n > /srv/zoo/count; done'
    tmux -S /srv/zoo/tmux split-window -t zoo 'top -d 1'
    exec sleep infinity
}
tmux_check() { moves && tmux -S /srv/zoo/tmux capture-pane -p -t zoo.0 | grep -q 'line [0-9]' && [ "$(tmux -S /srv/zoo/tmux list-panes -t zoo | wc -l)" = 2 ]; }

# packages of screen: screen
screen_start() {
    screen -dmS zoo bash -c 'n=0; while sleep 0.02; do n=$((n + 1)); echo "line $n"; echo $n > /srv/zoo/count; done'
    exec sleep infinity
}
screen_check() { moves && screen -S zoo -X hardcopy /srv/zoo/copy && sleep 0.5 && grep -q 'line [0-9]' copy; }

# packages of supervisord: supervisor
supervisord_start() {
    cat > conf <<'CONF'
[supervisord]
nodaemon=true
user=root
logfile=/srv/zoo/log
pidfile=/srv/zoo/pid
[unix_http_server]
file=/srv/zoo/socket
[rpcinterface:supervisor]
supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface
[supervisorctl]
serverurl=unix:///srv/zoo/socket
[program:counter]
command=bash -c 'n=0; while sleep 0.02; do n=$((n + 1)); echo $n; echo $n > /srv/zoo/count; done'
[program:sleeper]
command=sleep infinity
CONF
    exec supervisord -c conf
}
supervisord_check() { moves && [ "$(supervisorctl -c conf status | grep -c RUNNING)" = 2 ]; }

# packages of rabbitmq: rabbitmq-server
rabbitmq_start() {
    # A child has another host name, and must still find the node by the name of its parent.
    hostname -s > host
    export RABBITMQ_NODENAME="rabbit@$(cat host)" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
    exec rabbitmq-server
}
rabbitmq_check() { rabbitmqctl -q -n "rabbit@$(cat host)" eval 'rabbit:is_running().' | grep -q true; }

# packages of mosquitto: mosquitto mosquitto-clients
mosquitto_start() { printf 'listener 1883 127.0.0.1\nallow_anonymous true\n' > conf; exec mosquitto -c conf; }
mosquitto_load() {
    until nc -z 127.0.0.1 1883; do sleep 0.2; done
    (n=0; sleep 1; while sleep 0.02; do n=$((n + 1)); echo $n; done) | mosquitto_pub -h 127.0.0.1 -q 1 -t zoo -l &
    mosquitto_sub -h 127.0.0.1 -q 1 -t zoo | { n=0; while read -r line; do n=$((n + 1)); [ "$line" = $n ] || exit 1; echo $n > count; done; }
    exit 1
}
mosquitto_check() { moves; }

# packages of etcd: etcd-server etcd-client
etcd_start() { exec etcd --data-dir /srv/zoo/etcd --log-level error; }
etcd_load() {
    export ETCDCTL_API=3
    until etcdctl endpoint health; do sleep 0.2; done
    n=0
    while n=$((n + 1)); etcdctl put k $n > /dev/null && [ "$(etcdctl get k --print-value-only)" = $n ]; do echo $n > count; sleep 0.1; done
    exit 1
}
etcd_check() { moves; }

# packages of lighttpd: lighttpd
lighttpd_start() { site; printf 'server.document-root = "/srv/zoo/www"\nserver.port = 8080\nserver.bind = "127.0.0.1"\nindex-file.names = ("index.html")\nserver.max-keep-alive-requests = 1000000\nserver.max-keep-alive-idle = 36000\n' > conf; exec lighttpd -D -f conf; }
lighttpd_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 / zoo; }
lighttpd_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of php_fpm: php-fpm libfcgi-bin
php_fpm_start() {
    echo '<?php echo "zoo ", getmypid();' > index.php; chmod -R a+rX .
    printf '[global]\nerror_log = /dev/stderr\n[www]\nuser = www-data\ngroup = www-data\nlisten = 127.0.0.1:9000\npm = static\npm.max_children = 3\n' > conf
    exec "$(echo /usr/sbin/php-fpm[0-9]*)" -F -y conf
}
php_fpm_ask() { REQUEST_METHOD=GET SCRIPT_FILENAME=/srv/zoo/index.php cgi-fcgi -bind -connect 127.0.0.1:9000; }
php_fpm_load() { until php_fpm_ask; do sleep 0.2; done; n=0; while php_fpm_ask | grep -q zoo; do n=$((n + 1)); echo $n > count; sleep 0.05; done; exit 1; }
php_fpm_check() { moves && php_fpm_ask | grep -q zoo; }

# packages of ruby: ruby ruby-webrick
ruby_start() { exec ruby -e 'require "webrick"; n = 0; Thread.new { loop { n += 1; sleep 0.001 } }; s = WEBrick::HTTPServer.new(BindAddress: "127.0.0.1", Port: 8080, AccessLog: []); s.mount_proc("/") { |q, a| a.body = "zoo #{n} #{q.path}" }; s.start'; }
ruby_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 '/{n}' ' /{n}'; }
ruby_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of perl: perl
perl_start() { exec perl -MIO::Socket::INET -e '$SIG{CHLD} = "IGNORE"; $s = IO::Socket::INET->new(Listen => 9, ReuseAddr => 1, LocalAddr => "127.0.0.1:8080") or die; while ($c = $s->accept) { next if fork; $c->autoflush; while (<$c>) { print $c "heard $_" } exit }'; }
perl_load() { until nc -z 127.0.0.1 8080; do sleep 0.2; done; talk 8080 'round {n}\n' 'heard round {n}\n'; }
perl_check() { moves; }

# packages of sshd: openssh-server openssh-client
sshd_start() {
    mkdir -p /run/sshd /root/.ssh && ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/zoo && cp /root/.ssh/zoo.pub /root/.ssh/authorized_keys
    exec /usr/sbin/sshd -D -e -p 2222 -h /srv/zoo/host -o ListenAddress=127.0.0.1 -o StrictModes=no
}
sshd_load() { until nc -z 127.0.0.1 2222; do sleep 0.2; done; converse 'ssh -q -p 2222 -i /root/.ssh/zoo -o StrictHostKeyChecking=no root@127.0.0.1 cat' '{n}\n' '{n}'; }
sshd_check() { moves && [ "$(ssh -q -p 2222 -i /root/.ssh/zoo -o StrictHostKeyChecking=no root@127.0.0.1 echo zoo)" = zoo ]; }

# packages of rsyslog: rsyslog
rsyslog_start() { printf 'module(load="imudp")\ninput(type="imudp" address="127.0.0.1" port="5514")\n*.* /srv/zoo/log\n' > conf; exec rsyslogd -n -f conf -i /srv/zoo/pid; }
rsyslog_check() { local mark=$RANDOM$RANDOM; for _ in $(seq 100); do logger -n 127.0.0.1 -P 5514 -d "zoo $mark"; grep -q "zoo $mark" log && return; sleep 0.1; done; return 1; }

# packages of cron: cron
cron_start() { echo '* * * * * root touch /srv/zoo/ran' > /etc/cron.d/zoo; exec cron -f; }
# It keeps its schedule: the command ran within the last minute, or runs now. Waiting for a run at every step would take ten minutes.
cron_check() { for _ in $(seq 1500); do [ -n "$(find ran -newermt '75 seconds ago' 2>/dev/null)" ] && return; sleep 0.1; done; return 1; }

# packages of dnsmasq: dnsmasq dnsutils
dnsmasq_start() { exec dnsmasq -k -C /dev/null -u root -p 5353 --listen-address=127.0.0.1 --bind-interfaces --no-resolv --address=/zoo.test/10.1.2.3; }
dnsmasq_check() { [ "$(dig +short @127.0.0.1 -p 5353 zoo.test)" = 10.1.2.3 ]; }

# packages of chromium: chromium
chromium_start() {
    echo '<script>let count = 0; const kept = []; setInterval(() => { kept[count % 1000] = "x".repeat(5000); document.title = "zoo " + ++count }, 20)</script>' > page.html
    exec chromium --headless --no-sandbox --disable-gpu --user-data-dir=/srv/zoo/profile --remote-debugging-port=9222 file:///srv/zoo/page.html
}
chromium_title() { curl -fsS http://127.0.0.1:9222/json/list | sed -n 's/.*"title": "zoo \([0-9]*\)".*/\1/p' | head -1; }
chromium_check() { local before; before=$(chromium_title); [ -n "$before" ] && for _ in $(seq 200); do [ "$(chromium_title)" -gt "$before" ] && return; sleep 0.1; done; return 1; }

# packages of git_daemon: git
git_daemon_start() {
    git init -q --bare repo.git && git init -q work && (cd work && git -c user.name=z -c user.email=z@z commit -q --allow-empty -m zoo && git push -q ../repo.git HEAD:main)
    exec git daemon --base-path=/srv/zoo --export-all --listen=127.0.0.1 --port=9418 --reuseaddr
}
git_daemon_check() { git ls-remote git://127.0.0.1/repo.git | grep -q main; }

# packages of jupyter: python3-ipykernel python3-jupyter-client
jupyter_start() {
    exec python3 - <<'PY'
import time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
client.execute_interactive("x = 0", timeout=120)
for n in range(1, 1 << 60):
    heard = []
    client.execute_interactive("x += 1; print(x)", timeout=120, output_hook=lambda m: heard.append(m["content"].get("text", "")))
    assert "".join(heard).strip() == str(n), (n, heard)
    open("count", "w").write(str(n)); time.sleep(0.05)
PY
}
jupyter_check() { moves; }

# packages of vim: vim
vim_start() {
    exec python3 - <<'PY'
import os, pty, threading, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execvp("vim", ["vim", "-u", "NONE", "-N", "/srv/zoo/text"])
def drain():
    while os.read(terminal, 65536): pass
threading.Thread(target=drain, daemon=True).start()
time.sleep(1)
for n in range(1, 1 << 60):
    os.write(terminal, b"Goline %d\x1b:w\r" % n)
    deadline = time.monotonic() + 120
    while True:
        try:
            if open("/srv/zoo/text").read().endswith(f"line {n}\n"): break
        except FileNotFoundError: pass
        assert time.monotonic() < deadline, n
        time.sleep(0.01)
    open("count", "w").write(str(n)); time.sleep(0.1)
PY
}
vim_check() { moves; }

# packages of emacs: emacs-nox
emacs_start() { exec emacs --fg-daemon=zoo --eval '(setq zoo 0)'; }
emacs_load() { until emacsclient -s zoo -e zoo; do sleep 0.2; done; n=0; while n=$((n + 1)); [ "$(emacsclient -s zoo -e '(setq zoo (1+ zoo))')" = $n ]; do echo $n > count; sleep 0.05; done; exit 1; }
emacs_check() { moves; }

# packages of beanstalkd: beanstalkd
beanstalkd_start() { mkdir -p binlog; exec beanstalkd -l 127.0.0.1 -p 11300 -b binlog; }
beanstalkd_load() { until nc -z 127.0.0.1 11300; do sleep 0.2; done; talk 11300 'put 1 0 60 3\r\nzoo\r\n' 'INSERTED {n}\r\n' 'reserve\r\n' 'RESERVED {n} 3\r\nzoo\r\n' 'delete {n}\r\n' 'DELETED\r\n'; }
beanstalkd_check() { moves; }

# packages of stunnel: stunnel4 socat openssl
stunnel_start() {
    openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=zoo -keyout key -out cert -days 9 2> /dev/null
    socat TCP-LISTEN:8099,bind=127.0.0.1,fork,reuseaddr EXEC:cat &
    printf 'foreground = yes\npid =\n[zoo]\naccept = 127.0.0.1:8443\nconnect = 127.0.0.1:8099\ncert = /srv/zoo/cert\nkey = /srv/zoo/key\n' > conf
    exec stunnel conf
}
stunnel_load() { until nc -z 127.0.0.1 8443; do sleep 0.2; done; converse 'openssl s_client -quiet -connect 127.0.0.1:8443 2>/dev/null' 'round {n}\n' 'round {n}'; }
stunnel_check() { moves; }

# packages of squid: squid
squid_start() {
    backend; install -d -o proxy log
    printf 'http_port 127.0.0.1:3128\nhttp_access allow all\npid_filename none\naccess_log none\ncache_log /srv/zoo/log/cache\ncoredump_dir /srv/zoo/log\nshutdown_lifetime 1 second\npinger_enable off\n' > conf
    exec squid -N -f /srv/zoo/conf
}
squid_check() { curl -fsS -x http://127.0.0.1:3128 http://127.0.0.1:8099/ | grep -q zoo; }

# packages of gunicorn: gunicorn
gunicorn_start() {
    printf 'def app(e, start):\n    start("200 OK", [("Content-Length", "3")])\n    return [b"zoo"]\n' > app.py
    exec gunicorn -w 3 --threads 2 -b 127.0.0.1:8080 --keep-alive 100 app:app
}
gunicorn_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 / zoo; }
gunicorn_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of caddy: caddy
caddy_start() { site; exec caddy file-server --root www --listen 127.0.0.1:8080; }
caddy_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; web 8080 / zoo; }
caddy_check() { moves && curl -fsS http://127.0.0.1:8080/ | grep -q zoo; }

# packages of varnish: varnish
varnish_start() { backend; exec varnishd -F -a 127.0.0.1:8080 -b 127.0.0.1:8099 -n /srv/zoo/varnish -s malloc,32m -j none; }
# Its child ends when `poll` returns EINTR, as it does after a dump; the parent starts another.
varnish_check() { for _ in $(seq 100); do curl -fsS http://127.0.0.1:8080/ | grep -q zoo && return; sleep 0.2; done; return 1; }

# packages of unbound: unbound dnsutils
unbound_start() { printf 'server:\n interface: 127.0.0.1@5353\n chroot: ""\n username: ""\n pidfile: ""\n do-daemonize: no\n local-data: "zoo.test. A 10.1.2.3"\n num-threads: 2\n' > conf; exec unbound -d -c /srv/zoo/conf; }
unbound_check() { [ "$(dig +short @127.0.0.1 -p 5353 zoo.test)" = 10.1.2.3 ]; }

# packages of bind: bind9 dnsutils
bind_start() {
    printf 'options { directory "/srv/zoo"; pid-file none; session-keyfile none; listen-on port 5353 { 127.0.0.1; }; listen-on-v6 { none; }; recursion no; };\nzone "zoo.test" { type primary; file "zone"; };\n' > conf
    printf '$TTL 60\n@ SOA ns.zoo.test. a.zoo.test. 1 60 60 60 60\n@ NS ns.zoo.test.\nns A 10.1.2.3\n@ A 10.1.2.3\n' > zone
    exec named -f -c /srv/zoo/conf -p 5353
}
bind_check() { [ "$(dig +short @127.0.0.1 -p 5353 zoo.test)" = 10.1.2.3 ]; }

# packages of prometheus: prometheus
prometheus_start() { printf 'global: { scrape_interval: 1s }\nscrape_configs: [{ job_name: zoo, static_configs: [{ targets: ["127.0.0.1:9090"] }] }]\n' > conf; exec prometheus --config.file=conf --storage.tsdb.path=/srv/zoo/tsdb --web.listen-address=127.0.0.1:9090; }
prometheus_check() { for _ in $(seq 100); do curl -fsS 'http://127.0.0.1:9090/api/v1/query?query=up' | grep -q '"1"' && return; sleep 0.2; done; return 1; }

# packages of nats: nats-server
nats_start() { exec nats-server -a 127.0.0.1 -p 4222 --jetstream --store_dir /srv/zoo/js; }
nats_load() { until nc -z 127.0.0.1 4222; do sleep 0.2; done; talk 4222 'CONNECT {"verbose":false}\r\nPING\r\n' 'PONG' 'SUB zoo {n}\r\nPUB zoo 3\r\nzoo\r\nUNSUB {n}\r\nPING\r\n' 'PONG'; }
nats_check() { moves; }

# packages of slapd: slapd ldap-utils
slapd_start() {
    mkdir -p ldap && printf 'include /etc/ldap/schema/core.schema\npidfile /srv/zoo/pid\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix "dc=zoo"\nrootdn "cn=admin,dc=zoo"\nrootpw zoo\ndirectory /srv/zoo/ldap\n' > conf
    printf 'dn: dc=zoo\nobjectClass: dcObject\nobjectClass: organization\no: zoo\ndc: zoo\n' | slapadd -f conf
    exec slapd -d 0 -f conf -h ldap://127.0.0.1:3890
}
slapd_check() { ldapsearch -x -H ldap://127.0.0.1:3890 -b dc=zoo | grep -q 'o: zoo'; }

# packages of vsftpd: vsftpd
vsftpd_start() { site; mkdir -p empty; chmod a-w www; printf 'background=NO\nlisten=YES\nlisten_address=127.0.0.1\nlisten_port=2121\nanonymous_enable=YES\nanon_root=/srv/zoo/www\nsecure_chroot_dir=/srv/zoo/empty\nseccomp_sandbox=NO\nisolate=NO\nisolate_network=NO\n' > conf; exec vsftpd conf; }
vsftpd_check() { curl -fsS ftp://127.0.0.1:2121/index.html | grep -q zoo; }

bash_jobs_start() {
    exec bash -c 'set -m
        mkfifo pipe
        (n=0; while sleep 0.01; do n=$((n + 1)); echo $n; done) > pipe &
        sleep 10000 & kill -STOP $!; echo $! > stopped
        while read -r n; do echo $n > count; done < pipe'
}
bash_jobs_check() { moves && grep -q '^State:.T' "/proc/$(cat stopped)/status"; }

# packages of lua: lua5.4
lua_start() { exec lua5.4 -e 'local n = 0; while true do n = n + 1; local f = io.open("count", "w"); f:write(n); f:close(); os.execute("sleep 0.02") end'; }
lua_check() { moves; }

# packages of erlang: erlang-nox
erlang_start() { exec erl -noshell -eval 'L = fun L(N) -> file:write_file("count", integer_to_list(N)), receive after 20 -> L(N + 1) end end, L(1).'; }
erlang_check() { moves; }

# A program that runs from a memfd. Refused.
memfd_start() {
    exec python3 - <<'PY'
import os, subprocess, time
fd = os.memfd_create("program")
with open("/bin/bash", "rb") as program: os.write(fd, program.read())
os.fchmod(fd, 0o755)
child = subprocess.Popen([f"/proc/self/fd/{fd}", "-c", "while read -r n; do echo $n; done"], pass_fds=[fd], stdin=-1, stdout=-1)
data = os.memfd_create("data")
for n in range(1, 1 << 60):
    os.pwrite(data, b"%20d" % n, 0)
    child.stdin.write(b"%d\n" % n); child.stdin.flush()
    assert child.stdout.readline() == b"%d\n" % n
    assert int(os.pread(data, 20, 0)) == n
    open("count", "w").write(str(n)); time.sleep(0.02)
PY
}
memfd_check() { moves; }

# Each round reads what the round before left in the queues of Unix sockets.
socket_queues_start() {
    exec python3 - <<'PY'
import socket, time
pairs = [socket.socketpair(socket.AF_UNIX, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)]
for n in range(0, 1 << 60):
    for one, _ in pairs: one.send(b"%d" % n)
    open("count", "w").write(str(n)); time.sleep(0.5)
    for _, other in pairs: assert other.recv(100) == b"%d" % n
PY
}
socket_queues_check() { moves; }

# Queues that CRIU does not save: of POSIX messages, and a pipe of packets. Refused.
message_queues_start() {
    exec python3 - <<'PY'
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.mq_open(b"/zoo", os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o600, None)
assert queue >= 0, ctypes.get_errno()
out, into = os.pipe2(os.O_DIRECT)
for n in range(0, 1 << 60):
    text, heard = b"%d" % n, ctypes.create_string_buffer(8192)
    assert libc.mq_send(queue, text, len(text), 0) == 0, ctypes.get_errno()
    os.write(into, text); os.write(into, text + text)
    open("count", "w").write(str(n)); time.sleep(0.2)
    length = libc.mq_receive(queue, heard, 8192, None)
    assert heard.raw[:max(length, 0)] == text, (length, ctypes.get_errno())
    assert os.read(out, 100) == text and os.read(out, 100) == text + text
PY
}
message_queues_check() { moves; }

# files PIPES MIB: thousands of descriptors, pipes with contents, and a deleted file of this size.
files() {
    exec python3 - "$@" <<'PY'
import os, resource, sys, time
pipes, mib = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
files = [open(f"file{n}", "w+") for n in range(2500)]
pipes = [os.pipe() for _ in range(pipes)]
for n, (_, into) in enumerate(pipes): os.write(into, b"%d" % n)
part = os.urandom(1 << 20)
deleted = open("deleted", "w+b"); deleted.write(part * mib); deleted.flush(); os.unlink("deleted")
for n in range(1, 1 << 60):
    for file in files: file.seek(0); file.write(str(n)); file.flush()
    for m, (out, into) in enumerate(pipes):
        assert os.read(out, 100) == b"%d" % m
        os.write(into, b"%d" % m)
    deleted.seek((n % mib) << 20); assert deleted.read(1 << 20) == part
    open("count", "w").write(str(n)); time.sleep(0.1)
PY
}
many_files_start() { files 500 20; }
many_files_check() { moves; }

# More than CRIU saves. Refused.
too_many_files_start() { files 2500 200; }
too_many_files_check() { moves; }

# A path that is longer than any system call accepts. Refused.
deep_path_start() {
    exec python3 - <<'PY'
import os, time
for _ in range(30):
    os.mkdir("d" * 200); os.chdir("d" * 200)
held = open("file", "w+")
for n in range(1, 1 << 60):
    held.seek(0); held.write(str(n)); held.flush()
    assert open("file").read() == str(n)
    open("/srv/zoo/count", "w").write(str(n)); time.sleep(0.05)
PY
}
deep_path_check() { moves; }

# As ClickHouse does: an open file about one of its threads. Refused.
thread_stats_start() {
    exec python3 - <<'PY'
import os, threading, time
thread = threading.Thread(target=time.sleep, args=(100000,)); thread.start()
held = open(f"/proc/{os.getpid()}/task/{thread.native_id}/schedstat")
for n in range(1, 1 << 60):
    held.seek(0); assert held.read()
    open("count", "w").write(str(n)); time.sleep(0.05)
PY
}
thread_stats_check() { moves; }

# packages of dbus: dbus
dbus_start() { exec dbus-daemon --session --nofork --address=unix:path=/srv/zoo/bus; }
dbus_load() {
    until [ -S bus ]; do sleep 0.2; done
    export DBUS_SESSION_BUS_ADDRESS=unix:path=/srv/zoo/bus
    n=0
    while dbus-send --session --print-reply --dest=org.freedesktop.DBus / org.freedesktop.DBus.ListNames | grep -q freedesktop; do n=$((n + 1)); echo $n > count; sleep 0.05; done
    exit 1
}
dbus_check() { moves; }

# packages of ssh_agent: openssh-client
ssh_agent_start() { exec ssh-agent -D -a /srv/zoo/agent; }
ssh_agent_load() {
    until [ -S agent ]; do sleep 0.2; done
    export SSH_AUTH_SOCK=/srv/zoo/agent
    ssh-keygen -q -t ed25519 -N '' -f key && ssh-add -q key
    n=0
    while ssh-add -l | grep -q ED25519; do n=$((n + 1)); echo $n > count; sleep 0.05; done
    exit 1
}
ssh_agent_check() { moves; }

# packages of samba: samba smbclient
samba_start() {
    site; chmod -R a+rX .
    printf '[global]\nsmb ports = 4450\ninterfaces = lo\nbind interfaces only = yes\nmap to guest = bad user\nload printers = no\nlog file = /srv/zoo/log\n[zoo]\npath = /srv/zoo/www\nguest ok = yes\n' > conf
    exec smbd --foreground --no-process-group -s /srv/zoo/conf
}
samba_load() {
    until nc -z 127.0.0.1 4450; do sleep 0.2; done
    n=0
    while smbclient -p 4450 -N //127.0.0.1/zoo -c 'get index.html -' 2> /dev/null | grep -q zoo; do n=$((n + 1)); echo $n > count; sleep 0.1; done
    exit 1
}
samba_check() { moves; }

# packages of dovecot: dovecot-imapd
dovecot_start() {
    useradd -m mailbox
    cat > conf <<'CONF'
protocols = imap
log_path = /dev/stderr
ssl = no
disable_plaintext_auth = no
mail_location = maildir:~/Maildir
passdb {
  driver = static
  args = password=zoo
}
userdb {
  driver = passwd
}
service imap-login {
  inet_listener imap {
    address = 127.0.0.1
    port = 1143
  }
}
CONF
    exec dovecot -F -c /srv/zoo/conf
}
dovecot_load() {
    until nc -z 127.0.0.1 1143; do sleep 0.2; done
    exec python3 - <<'PY'
import imaplib, time
peer = imaplib.IMAP4("127.0.0.1", 1143)
peer.login("mailbox", "zoo")
for n in range(1, 1 << 60):
    assert peer.noop()[0] == "OK"
    open("count", "w").write(str(n)); time.sleep(0.05)
PY
}
dovecot_check() { moves; }

# packages of uwsgi: uwsgi uwsgi-plugin-python3
uwsgi_start() {
    printf 'def application(e, start):\n    start("200 OK", [("Content-Length", "3")])\n    return [b"zoo"]\n' > app.py
    exec uwsgi --plugin python3 --http-socket 127.0.0.1:8080 --master --processes 2 --enable-threads --wsgi-file app.py
}
uwsgi_load() { until curl -fsS http://127.0.0.1:8080/; do sleep 0.2; done; n=0; while [ "$(curl -fsS http://127.0.0.1:8080/)" = zoo ]; do n=$((n + 1)); echo $n > count; sleep 0.05; done; exit 1; }
uwsgi_check() { moves && [ "$(curl -fsS http://127.0.0.1:8080/)" = zoo ]; }

# packages of gdb: gdb
# A debugger holds what it debugs, and only one can: refused.
gdb_start() { exec gdb -q -nx -batch -ex 'run 100000' sleep; }
gdb_check() { pgrep -x sleep > /dev/null; }

"$1_$2"
