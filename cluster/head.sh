#!/usr/bin/env bash
# The Ray head of this machine, for `make`: start it, submit a job to it, stop it and nothing else.
#     cluster/head.sh start | submit COMMAND… | stop | environment
set -euo pipefail
cd "$(dirname "$0")/.."

port=${DASHBOARD_PORT:-8265}
temporary=${HEAD_FOLDER:-/tmp/bertstream-$(id -u)-$(printf %s "$PWD" | cksum | cut -d" " -f1)} # short: Ray puts sockets in it
state=$temporary/head
address=http://127.0.0.1:$port
export PATH=$PWD/.venv/bin:$PATH VIRTUAL_ENV=$PWD/.venv RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

fail() { echo "error: $*" >&2; exit 2; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

# A pid file outlives its process and pids are given again: the command must be ours too.
running() { [ -s "$state/pid" ] && command_of "$(cat "$state/pid")" | grep -q "ray start --head.*$temporary"; }
command_of() { if [ -r "/proc/$1/cmdline" ]; then tr '\0' ' ' <"/proc/$1/cmdline"; else ps -o args= -p "$1" 2>/dev/null; fi; }

launch() {
    if listening; then fail "port $port of 127.0.0.1 is taken by another program: stop it, or choose another with DASHBOARD_PORT=…"; fi
    mkdir -p "$state"
    ray get-auth-token --generate >/dev/null 2>&1 || fail "no Ray token could be made in ~/.ray"
    echo "starting a Ray head on 127.0.0.1 (dashboard $address)"
    # A session of its own, so that Ctrl-C does not reach it; jobs get MLFLOW_TRACKING_URI from who submits them, not from here.
    env -u MLFLOW_TRACKING_URI python -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])' \
        ray start --head --block --port 0 --node-ip-address 127.0.0.1 --dashboard-host 127.0.0.1 --dashboard-port "$port" \
        --dashboard-agent-listen-port 0 --temp-dir "$temporary" --disable-usage-stats >"$state/log" 2>&1 </dev/null &
    echo $! >"$state/pid"
}

start() {
    running || launch
    for _ in $(seq 120); do
        if listening && ray job list --address "$address" >/dev/null 2>&1; then return; fi
        running || fail "the Ray head did not start; its log is $state/log"
        sleep 0.5
    done
    fail "the Ray head does not answer at $address; its log is $state/log"
}

submit() {
    local id words environment=()
    id=make-$(date +%s)-$$
    printf -v words '%q ' "$@" # the job's shell would split and expand them
    case "${MLFLOW_TRACKING_URI:-}" in *://*@*) fail "MLFLOW_TRACKING_URI has a login in it, which Ray would write into its logs: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD before the head starts (make stop), and leave it out of the address";; esac
    if [ -n "${MLFLOW_TRACKING_URI:-}" ]; then environment=(--runtime-env-json "{\"env_vars\": {\"MLFLOW_TRACKING_URI\": \"$MLFLOW_TRACKING_URI\"}}"); fi
    ray job submit --address "$address" --submission-id "$id" ${environment[@]+"${environment[@]}"} -- bash -c "$words" &
    local client=$!
    trap 'trap "" INT TERM
        echo "stopping the job"
        kill $client 2>/dev/null || true
        wait $client 2>/dev/null || true
        ray job stop --address "$address" "$id" >/dev/null 2>&1 || true
        exit 130' INT TERM
    wait "$client"
}

stop() {
    if ! running; then echo "no Ray head of this project is running"; rm -f "$state/pid"; return; fi
    local pid
    pid=$(cat "$state/pid")
    kill -TERM "$pid"
    for _ in $(seq 60); do
        if ! running; then rm -f "$state/pid"; echo "the Ray head is stopped"; return; fi
        sleep 0.5
    done
    kill -KILL -- "-$pid"
    rm -f "$state/pid"
}

environment() {
    echo "source $VIRTUAL_ENV/bin/activate"
    if [ "$port" = 8265 ]; then echo "export RAY_AUTH_MODE=token"; else echo "export RAY_AUTH_MODE=token RAY_API_SERVER_ADDRESS=$address"; fi
}

case "${1:-}" in
start | stop | environment) "$1" ;;
submit) shift && submit "$@" ;;
*) sed -n '2,3s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
