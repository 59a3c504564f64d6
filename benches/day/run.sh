#!/usr/bin/env bash
# Runs a bundle made by scripts/gpu_day.sh: it needs bash, coreutils and a Vulkan driver, no cargo and no network.
#
#   ./run.sh all                        every step, half an hour on a fast card
#   ./run.sh 3                          one step; each ends within nine minutes
#   ./run.sh --small all                sizes for software adapters
#   ./run.sh --adapter NVIDIA 1 3 9     the adapter by a part of its name; the best one by default
#
# Steps: 0 machine, 1 smoke, 2 tests, 3 kernels, 4 sweep, 5 steps, 6 tune, 7 pytorch, 8 train, 9 summary.
#
# Every row is added to results/results.jsonl as soon as it is done, logs of rows are in results/logs, traces for
# https://ui.perfetto.dev in results/traces. Step 9 makes results/summary.md of all rows there are; of rows measured several
# times it shows medians, so run a step again for a spread. RESULTS names another folder. ROOFLINE (FLOPS,BYTES_PER_S: of the
# data sheet, such as 67e12,4.8e12) is what kernels are compared with, instead of the best that was measured.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
names=(machine smoke tests kernels sweep steps tune pytorch train summary)
# Seconds of a step, of one row at most, and of a row that is expected to be short.
STEP=540 ROW=240 SHORT=60

scale=gpu adapter="" chosen=()
while [ $# -gt 0 ]; do
    case "$1" in
        --small) scale=small ;;
        --adapter)
            [ $# -gt 1 ] || { echo "run.sh: --adapter takes a part of a name" >&2; exit 2; }
            adapter=$2
            shift
            ;;
        all) chosen=(0 1 2 3 4 5 6 7 8 9) ;;
        [0-9]) chosen+=("$1") ;;
        *)
            sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
            exit 2
            ;;
    esac
    shift
done
if [ ${#chosen[@]} -eq 0 ]; then
    echo "run.sh: which steps? 0 to 9, or all: ${names[*]}" >&2
    exit 2
fi

results=${RESULTS:-$here/results}
mkdir -p "$results/logs" "$results/traces" "$results/cache" || exit 2
results=$(cd "$results" && pwd)
cd "$here" || exit 2
lines=$results/results.jsonl
options=(--cache "$results/cache")
[ -z "$adapter" ] || options+=(--adapter "$adapter")
# Without a desktop, a layer of Mesa's prints errors that mean nothing.
[ -n "${XDG_RUNTIME_DIR:-}" ] || export NODEVICE_SELECT="${NODEVICE_SELECT:-1}"
export WGRAD_FIXTURES=$here/fixtures
failed=0 deadline=0

# A text as a JSON string, on one line.
quoted() {
    printf '"%s"' "$(printf '%s' "$1" | tr '\n\t\r' '   ' | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

# The value of a text field of a line of JSON, still escaped.
field() { sed -n "s/.*\"$1\":\"\(\([^\"\\\\]\|\\\\.\)*\)\".*/\1/p" | head -n 1; }

libraries() { ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null; }

# Containers bring the driver and leave out the loader or the manifest that names the driver; the bundle has a loader.
find_driver() {
    local manifest library
    # A here-string rather than a pipe: grep -q would end ldconfig by SIGPIPE, which pipefail reports.
    if ! grep -qF 'libvulkan.so.1 ' <<<"$(libraries)" &&
        [ ! -e /usr/lib/libvulkan.so.1 ] && [ -e "$here/lib/libvulkan.so.1" ]; then
        export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        loader="the bundle's"
    else
        loader="the system's"
    fi
    [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] || return
    for manifest in /usr/share/vulkan/icd.d/nvidia_icd*.json /etc/vulkan/icd.d/nvidia_icd*.json \
        /usr/local/share/vulkan/icd.d/nvidia_icd*.json /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json; do
        if [ -e "$manifest" ]; then
            # The loader does not look into the last folder by itself.
            case "$manifest" in /usr/local/nvidia/*) export VK_DRIVER_FILES=$manifest VK_ICD_FILENAMES=$manifest ;; esac
            return
        fi
    done
    [ -e /dev/nvidiactl ] || return
    library=$(libraries | sed -n 's/.*libGLX_nvidia\.so\.0 .*=> //p' | head -n 1)
    [ -n "$library" ] || return
    manifest=$results/nvidia_icd.json
    printf '{"file_format_version":"1.0.0","ICD":{"library_path":"%s","api_version":"1.3.0"}}\n' "$library" >"$manifest"
    export VK_DRIVER_FILES=$manifest VK_ICD_FILENAMES=$manifest
}

# line STEP COMMAND STATUS SECONDS ERROR NOTES RESULT: adds a line of results.
line() {
    printf '{"step":"%s","scale":"%s","adapter":"%s","driver":"%s","date":"%s","command":%s,"status":%d,"seconds":%d,"error":%s,"notes":%s,"result":%s}\n' \
        "$1" "$scale" "$name" "$driver" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$(quoted "$2")" "$3" "$4" \
        "$(if [ -n "$5" ]; then quoted "$5"; else printf null; fi)" \
        "$(if [ -n "$6" ]; then quoted "$6"; else printf null; fi)" "${7:-null}" >>"$lines"
}

# What the tests printed, as JSON: counts, and the names of those that failed or did not end.
counted() {
    awk '/^test .* \.\.\. / { n = $2; if ($NF == "ok") ok++; else if ($NF == "FAILED") { bad++; list = list sep "\"" n "\""; sep = "," } else if ($0 ~ /ignored/) skipped++ }
        /^running / { total += $2 }
        END { printf "{\"tests\":%d,\"passed\":%d,\"failed\":%d,\"ignored\":%d,\"names\":[%s]}", total, ok, bad, skipped, list }' "$1"
}

# row STEP SECONDS COMMAND...: runs a command for at most so long, within what is left of the step.
row() {
    local step=$1 most=$2 status=0 start=$SECONDS left=$((deadline - SECONDS)) log error="" notes result=""
    shift 2
    local told="$*"
    told=${told//"$results/"/results/}
    if [ "$left" -lt 5 ]; then
        line "$step" "$told" 124 0 "not run: the step's $STEP s were over" "" null
        failed=1
        return
    fi
    [ "$most" -lt "$left" ] || most=$left
    printf '+ %s' "$told" >&2
    log=$results/logs/$step-$(date +%s)-$RANDOM
    timeout -k 5 "$most" "$@" >"$log.out" 2>"$log.err" </dev/null || status=$?
    if [ "$step" = tests ]; then
        result=$(counted "$log.out")
    else
        result=$(grep '^[{[]' "$log.out" | tail -n 1)
    fi
    if [ "$status" -ne 0 ]; then
        failed=1
        error=$(grep -m 1 -i 'error\|panicked' "$log.err" || tail -n 1 "$log.err")
        case "$status" in 124 | 137) error="it ran longer than $most s" ;; esac
        [ "$step" = tests ] && [ "$status" -eq 101 ] && error="tests failed: $log.out"
        error=${error:-exit status $status}
    fi
    notes=$(grep -E '^(warning|info): ' "$log.err" | head -n 8)
    line "$step" "$told" "$status" $((SECONDS - start)) "${error//"$results/"/results/}" "$notes" "$result"
    printf ' · %d s%s\n' $((SECONDS - start)) "${error:+ · $error}" >&2
}

rows() { sed -n "s/^$scale $1 //p" rows.txt; }

# bench STEP SECONDS: the rows of a step; arguments are words without blanks.
bench() {
    local step=$1 most=$2 text words number=0
    while IFS= read -r text; do
        read -ra words <<<"$text"
        number=$((number + 1))
        case " $text " in *" --profile "*) words+=(--trace "$results/traces/$scale-${words[0]}-$number.json") ;; esac
        row "$step" "$most" ./wgrad --quiet -v bench "${words[@]}" "${options[@]}" --json
    done < <(rows "$step")
}

# fact NAME VALUE: a field of an object, with a comma; nothing for what is not known.
fact() { [ -z "$2" ] || printf '%s:%s,' "$(quoted "$1")" "$(quoted "$2")"; }

step_machine() {
    local facts gpu=name,driver_version,power.limit,clocks.max.sm,clocks.max.mem,memory.total
    facts=$(
        fact system "$(uname -srm)"
        fact cores "$(nproc)"
        fact memory "$(free -h 2>/dev/null | awk '/^Mem/ { print $2 }')"
        fact libc "$(ldd --version 2>/dev/null | head -n 1)"
        fact loader "$loader"
        fact manifests "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-$(cd / && ls /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json 2>/dev/null)}}"
        fact gpu "$(nvidia-smi --query-gpu=$gpu --format=csv,noheader 2>/dev/null)"
        fact load "$(cut -d ' ' -f 1-3 /proc/loadavg 2>/dev/null)"
        fact built "$(cat commit 2>/dev/null)"
    )
    line machine "what the system tells" 0 0 "" "" "{${facts%,}}"
    row machine $SHORT ./wgrad adapters --json
    # The verdict on cooperative matrices, in words.
    row machine $SHORT ./wgrad --quiet -v bench matmul --size 256 --dtype f16 "${options[@]}" --json
}

step_tests() {
    local text words
    while IFS= read -r text; do
        read -ra words <<<"$text"
        row tests $ROW ./adapter_tests "${words[@]}"
    done < <(rows tests)
}

step_pytorch() {
    local most=$((deadline - SECONDS - 5)) text log=$results/logs/pytorch-$(date +%s).err
    local python=${PYTHON:-python3}
    if ! timeout 60 "$python" -c 'import torch' 2>/dev/null; then
        echo "  no PyTorch here: $python cannot import torch (PYTHON names another)" >&2
        return
    fi
    # One process for all rows, because importing torch and starting CUDA take seconds.
    while IFS= read -r text; do
        line pytorch "$(field command <<<"$text")" "$(grep -c '"error"' <<<"$text")" 0 "$(field error <<<"$text")" "" "$text"
        printf '  %s\n' "$(field command <<<"$text")" >&2
    done < <(timeout -k 5 "$most" "$python" -u pytorch.py rows.txt "$scale" 2>"$log" || echo "{\"command\":\"pytorch.py\",\"error\":$(quoted "$(tail -n 1 "$log")")}")
}

# Each row twice: the same bits, and a loss that falls; the summary compares them.
step_train() {
    local text words
    while IFS= read -r text; do
        read -ra words <<<"$text"
        for _ in 1 2; do
            row train $ROW ./wgrad --quiet bench "${words[@]}" "${options[@]}" --json
        done
    done < <(rows train)
}

step_summary() {
    local roofline=()
    [ -z "${ROOFLINE:-}" ] || roofline=(--roofline "$ROOFLINE")
    if timeout $SHORT ./wgrad summary "$lines" "${roofline[@]}" >"$results/summary.md"; then
        echo "results/summary.md:" >&2
        cat "$results/summary.md"
    else
        failed=1
    fi
}

find_driver
# A first row tells which adapter it is; without one nothing else makes sense.
first=$(timeout $SHORT ./wgrad --quiet bench dispatch "${options[@]}" --json 2>"$results/logs/first.err") || {
    echo "run.sh: no adapter, or it does not compute:" >&2
    cat "$results/logs/first.err" >&2
    ./wgrad adapters >&2
    exit 1
}
name=$(field adapter <<<"$first") driver=$(field driver <<<"$first")
# Tests run on every adapter that they find.
export WGRAD_ADAPTER=$name
echo "$name, driver $driver; loader: $loader; results in $results" >&2

for number in "${chosen[@]}"; do
    step=${names[$number]}
    deadline=$((SECONDS + STEP))
    echo "== $number $step" >&2
    case "$step" in
        smoke | kernels | sweep) bench "$step" $SHORT ;;
        steps) for kind in steps recompute; do bench "$kind" $ROW; done ;;
        tune) bench tune $ROW ;;
        *) "step_$step" ;;
    esac
done
exit "$failed"
