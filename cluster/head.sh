#!/usr/bin/env bash
# The Ray head of this machine, for `make`: start it, submit a job to it, stop it and nothing else.
#     cluster/head.sh start | submit COMMAND… | stop | environment
set -euo pipefail
cd "$(dirname "$0")/.."

port=${DASHBOARD_PORT:-8265}
address=http://127.0.0.1:$port
export HOME=${HOME-~} # if it is not set, the user's own
# Not below $XDG_RUNTIME_DIR: it is deleted at logout, which the head outlives, and is memory, to which Ray would spill.
key=$(printf '%s %s' "$(uname -n)" "$PWD" | cksum | cut -d" " -f1)
folder=${HEAD_FOLDER:-${XDG_CACHE_HOME:-$HOME/.cache}/bertstream/$(printf %08x "$key")}
folder=${folder%/}
users_umask=$(umask)
umask 077 # for what is written here; the head, whose jobs write the output, gets the user's own
# The head listens on 127.0.0.1 alone, so no other machine can join it; its workers have the priority of other programs;
# and it does not wait for jobs, which have no other node to go to, when it is stopped.
# Metrics are for Prometheus, and Ray Data's process that collects them grows by some 8 MB a minute (ray 2.60).
export RAY_enable_metrics_collection=${RAY_enable_metrics_collection:-0} RAY_task_events_max_num_task_in_gcs=${RAY_task_events_max_num_task_in_gcs:-10000}
# Batches have ever new numbers of tokens, and compiled matrix products of as many shapes take memory (pipeline/command_line/environment.py).
export ONEDNN_PRIMITIVE_CACHE_CAPACITY=${ONEDNN_PRIMITIVE_CACHE_CAPACITY:-128} LRU_CACHE_CAPACITY=${LRU_CACHE_CAPACITY:-128}
export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 RAY_worker_niceness=0 RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0
export PATH=$PWD/.venv/bin:$PATH VIRTUAL_ENV=$PWD/.venv RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
export RAY_API_SERVER_ADDRESS=$address # that of the user's shell would take precedence over --address
export RAY_TRAIN_ENABLE_STATE_TRACKING=1 # the dashboard answers for runs of Ray Train and their workers

fail() { echo "error: $*" >&2; exit 2; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# Whether every program that listens on the port is this user's: a token is sent to no other.
only_ours_listens() {
    if [ -r /proc/net/tcp ]; then
        awk -v port="$(printf ':%04X$' "$port")" -v user="$(id -u)" \
            '$2 ~ port && $4 == "0A" { if ($8 == user) ours = 1; else others = 1 } END { exit !(ours && !others) }' \
            /proc/net/tcp $([ -r /proc/net/tcp6 ] && echo /proc/net/tcp6)
    else
        [ -n "$(lsof -a -u "$(id -u)" -iTCP:"$port" -sTCP:LISTEN -t 2>/dev/null)" ]
    fi
}

# Make a folder for this user alone, or refuse one that another user made or can write to.
own_folder() {
    local about
    about=$(mkdir -p "$(dirname "$1")" 2>&1) || fail "${about#mkdir: }: choose another folder with HEAD_FOLDER=…"
    about=$(mkdir -m 700 "$1" 2>&1) || [ -e "$1" ] || [ -L "$1" ] || fail "${about#mkdir: }: choose another folder with HEAD_FOLDER=…"
    if [ -L "$1" ] || [ ! -d "$1" ] || [ ! -O "$1" ]; then
        fail "$1 is not a folder of this user's own: choose another with HEAD_FOLDER=…"
    fi
    about=$(ls -ldn "$1")
    [ "${about:4:6}" = ------ ] ||
        fail "$1 is open to other users (${about:0:10}): chmod 700 it, or choose another with HEAD_FOLDER=…"
}

# Write standard input to a new file of the folder, whatever had its name: a link is not followed.
write_new() (rm -f "$folder/$1" && set -o noclobber && cat >"$folder/$1")

# Print a folder for Ray inside one that is closed to others, as Ray opens its own to everybody. The paths of Ray's
# sockets are up to 71 bytes longer, and systems take 103: where a home is too long, the closed one is new, in /tmp.
new_ray_folder() {
    local LC_ALL=C closed=$folder
    if [ $((${#folder} + 4 + 71)) -gt 103 ]; then closed=$(mktemp -d /tmp/bertstream-head-XXXXXX); fi
    echo "$closed/ray"
}

# Delete what the last head left, its logs too.
delete_ray_folder() {
    local last
    last=$(ray_folder)
    rm -rf "$folder/spilled"
    case $last in
    "$folder/ray") rm -rf "$last" ;;
    /tmp/bertstream-head-??????/ray) if [ -O "$(dirname "$last")" ]; then rm -rf "$(dirname "$last")"; fi ;;
    esac
}

ray_folder() { cat "$folder/ray-folder" 2>/dev/null || true; }

# A pid file outlives its process and pids are given again: the command must be ours too.
running() {
    [ -s "$folder/pid" ] &&
        [[ "$(command_of "$(cat "$folder/pid")")" == *"ray start --head"*" --temp-dir $(ray_folder) "* ]]
}

command_of() {
    if [ -r "/proc/$1/cmdline" ]; then tr '\0' ' ' <"/proc/$1/cmdline"; else ps -o args= -p "$1" 2>/dev/null; fi
}

launch() {
    local ray client_port
    if listening; then
        fail "port $port of 127.0.0.1 is taken by another program: stop it, or choose another with DASHBOARD_PORT=…"
    fi
    make_token
    delete_ray_folder
    ray=$(new_ray_folder)
    client_port=$(free_port) # Ray always takes one, and another user's head has the usual one
    echo "$ray" | write_new ray-folder
    : | write_new log
    versions | write_new versions
    echo "starting a Ray head on 127.0.0.1 (dashboard $address)"
    # A session of its own, so that Ctrl-C does not reach it; jobs get MLFLOW_TRACKING_URI from who submits them.
    (
        umask "$users_umask"
        exec env -u MLFLOW_TRACKING_URI python -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' \
            ray start --head --block --port 0 --node-ip-address 127.0.0.1 --dashboard-host 127.0.0.1 --dashboard-port "$port" \
            --dashboard-agent-listen-port 0 --ray-client-server-port "$client_port" --temp-dir "$ray" \
            --object-spilling-directory "$folder/spilled" --disable-usage-stats >>"$folder/log" 2>&1 </dev/null
    ) &
    echo $! | write_new pid
}

versions() { python -c 'import platform; from importlib.metadata import version; print(version("ray"), platform.python_version())'; }

free_port() { python -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])'; }

# Ray writes its token so that all users of the machine can read it.
make_token() {
    if [ -n "${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-}" ]; then return; fi
    ray get-auth-token --generate >/dev/null 2>&1 ||
        fail "HOME ($HOME) cannot hold Ray's token, .ray/auth_token: set HOME to a folder that you can write to"
    if [ -e "$HOME/.ray/auth_token" ]; then chmod 600 "$HOME/.ray/auth_token"; fi
}

start() {
    own_folder "$folder"
    if running; then
        [ "$(versions)" = "$(cat "$folder/versions" 2>/dev/null)" ] ||
            fail "the running Ray head is of another Ray or Python, and no job could join it: make stop, then the same command again"
    else
        launch
    fi
    for _ in $(seq 120); do
        if only_ours_listens && ray job list --address "$address" >/dev/null 2>&1; then return; fi
        kill -0 "$(cat "$folder/pid")" 2>/dev/null || fail "the Ray head did not start; its log is $folder/log"
        sleep 0.5
    done
    fail "the Ray head does not answer at $address; its log is $folder/log"
}

# Print a name for a job: that of its script and the word after it, as "pretrain bert-tiny".
name_of() {
    local name=${1:-command}
    name=${name##*/}
    while [ $# -gt 0 ]; do
        case $1 in *.py)
            name=${1##*/}
            name=${name%.py}
            case ${2:--} in -*) ;; *) name="$name ${2##*/}" ;; esac
            break
            ;;
        esac
        shift
    done
    tr -cs 'A-Za-z0-9_. \n' - <<<"$name"
}

submit() {
    local name id quoted words=("$@") metadata environment={} code=0 status
    name=$(name_of "$@")
    id=$(tr -cs 'A-Za-z0-9_\n' - <<<"$name-$(date +%Y%m%d-%H%M%S)-$$")
    metadata="{\"job_name\": \"$name\", \"commit\": \"$(git rev-parse --short HEAD 2>/dev/null || echo none)\", \"stopped_by\": \"Ctrl-C\"}"
    printf -v quoted '%q ' "$@"
    if [ "$quoted" != "$* " ]; then words=(bash -c "$quoted"); fi # the job's shell would split and expand them
    case "${MLFLOW_TRACKING_URI:-}" in *://*@*) fail "MLFLOW_TRACKING_URI has a login in it, which Ray would write into its logs: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD before the head starts (make stop), and leave it out of the address";; esac
    if [ -n "${MLFLOW_TRACKING_URI:-}" ]; then environment="{\"MLFLOW_TRACKING_URI\": \"$MLFLOW_TRACKING_URI\"}"; fi
    own_folder "$folder"
    running && only_ours_listens || fail "no Ray head of this project listens on port $port: cluster/head.sh start"
    python cluster/submit.py "$address" "$id" "$metadata" "$environment" "${words[@]}" &
    local client=$!
    trap 'trap "" INT TERM
        echo "stopping the job"
        kill $client 2>/dev/null || true
        wait $client 2>/dev/null || true
        ray job stop --address "$address" "$id" >/dev/null 2>&1 || true
        exit 130' INT TERM
    wait "$client" || code=$?
    if [ $code = 141 ]; then ray job stop --address "$address" "$id" >/dev/null 2>&1 || true; exit 141; fi # as in `| head`
    # A head that is being stopped can end the client with an error of the connection, a moment before it is gone itself.
    if [ $code != 0 ]; then sleep 0.5; if listening; then return $code; fi; fi
    # The log also ends when the job or the head is stopped.
    for _ in $(seq 20); do # Ray notes how a job ended some time after its log has ended
        running && only_ours_listens || unfinished "the Ray head was stopped before the job ended"
        # No pipe into grep -q: ray would end with SIGPIPE.
        status=$(ray job status --address "$address" "$id" 2>&1) || status=gone
        case $status in
        *"'$id' succeeded"*) return ;;
        *"'$id' was stopped"*) unfinished "the job was stopped" ;;
        esac
        sleep 0.5
    done
    unfinished "the Ray head did not say in ten seconds how the job ended"
}

unfinished() { echo "error: $1; the same command continues a run" >&2; exit 1; }

stop() {
    if [ -e "$folder" ] || [ -L "$folder" ]; then own_folder "$folder"; fi
    if ! running; then echo "no Ray head of this project is running"; rm -f "$folder/pid"; return; fi
    local pid
    pid=$(cat "$folder/pid")
    kill -TERM "$pid"
    for _ in $(seq 60); do
        if ! running; then rm -f "$folder/pid"; echo "the Ray head is stopped"; return; fi
        sleep 0.5
    done
    kill -KILL -- "-$pid"
    rm -f "$folder/pid"
    echo "the Ray head is stopped: it did not end in 30 seconds and was killed"
}

environment() {
    # The address also where it is the default: without it, ray finds several Rays as soon as a job starts one of its own.
    echo "source $VIRTUAL_ENV/bin/activate"
    echo "export RAY_AUTH_MODE=token RAY_API_SERVER_ADDRESS=$address"
}

case "${1:-}" in
start | stop | environment) "$1" ;;
submit) shift && submit "$@" ;;
*) sed -n '2,3s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
