#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: install, hold the Triton kernels to the definition, time them beside what else there is.
# Under 5 minutes after installation. One JSON line a result goes to results/gpu.jsonl, or to where --json says.
#
#   bench/gpu.sh                       makes build/gpu-venv with the python3 that is there, and installs into it
#   bench/gpu.sh --python PATH         uses a Python that has relnet and Triton
#   bench/gpu.sh --dry-run             tiny shapes, interpreted on a CPU: does the script itself work?
set -euo pipefail

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0"; }

refuse() {
    echo "$1; bench/gpu.sh --help says how to call it" >&2
    exit 2
}

python=""
json=""
arguments=()
while (($#)); do
    case $1 in
        --python) (($# > 1)) || refuse "--python needs a path"; python=$2; shift 2 ;;
        --json) (($# > 1)) || refuse "--json needs a path"; json=$2; shift 2 ;;
        --dry-run) arguments+=(--dry-run); export TRITON_INTERPRET=1; shift ;;
        -h | --help) usage; exit 0 ;;
        *) refuse "$1 is unknown" ;;
    esac
done

# Paths are those of where the user stands, not of the repository.
[[ -z $json || $json == /* ]] || json=$PWD/$json
[[ $python != */* || $python == /* ]] || python=$PWD/$python
cd "$(dirname "$0")/.."

if [[ -z $python ]]; then
    [[ -e build/gpu-venv/bin/python ]] || python3 -m venv build/gpu-venv
    python=build/gpu-venv/bin/python
    "$python" -m pip install --disable-pip-version-check -q -c constraints.txt -e '.[triton]'
fi

"$python" bench/gpu.py --json "${json:-results/gpu.jsonl}" "${arguments[@]}"
