#!/usr/bin/env bash
# The masters of a run, one per array index: BOHB_ID = index. slurm/submit.py submits this. By hand, for 2 masters:
#
#   ENVOLVE_RUN_DIR=results/my_run sbatch --array=0-1 slurm/masters.sh CONFIG.yaml --seed {BOHB_ID}
#   ENVOLVE_RUN_DIR=results/my_study ENVOLVE_MASTERS=2 sbatch --array=0-1 slurm/masters.sh STUDY.yaml
#
# Options on sbatch's command line go before those that stand here.
#SBATCH --job-name=envolve-masters
#SBATCH --array=0-0
#SBATCH --cpus-per-task=1
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x_%A_%a.log
set -euo pipefail
: "${SLURM_ARRAY_TASK_ID:?found none; send this script with sbatch --array=0-0}"

ENVOLVE_ROOT=${ENVOLVE_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}      # the repository
ENVOLVE_RUN_DIR=${ENVOLVE_RUN_DIR:-results/slurm_run}        # folder of the run, seen by all nodes
ENVOLVE_MASTERS=${ENVOLVE_MASTERS:-${SLURM_ARRAY_TASK_COUNT:-1}}
ENVOLVE_FIRST_BOHB_ID=${ENVOLVE_FIRST_BOHB_ID:-0}            # of the master of index 0
ENVOLVE_FIRST_INDEX=${ENVOLVE_FIRST_INDEX:-0}                # of this array, where there are several
ENVOLVE_PYTHON=${ENVOLVE_PYTHON:-$ENVOLVE_ROOT/.venv/bin/python}
ENVOLVE_SETUP=${ENVOLVE_SETUP:-}                             # a file of bash commands to run first (module load ...)
ENVOLVE_MAX_REQUEUES=${ENVOLVE_MAX_REQUEUES:-100}
ENVOLVE_KILL_AFTER=${ENVOLVE_KILL_AFTER:-60}                 # seconds from SIGTERM to SIGKILL; less than --signal's

trap '' USR1 # until task.py waits for it
if [ -n "$ENVOLVE_SETUP" ]; then
    # shellcheck source=/dev/null
    source "$ENVOLVE_SETUP"
fi
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}

BOHB_ID=$((SLURM_ARRAY_TASK_ID + ENVOLVE_FIRST_INDEX + ENVOLVE_FIRST_BOHB_ID))
exec "$ENVOLVE_PYTHON" "$ENVOLVE_ROOT/slurm/task.py" --role master --bohb-id "$BOHB_ID" --index "$BOHB_ID" \
    --masters "$ENVOLVE_MASTERS" --run-dir "$ENVOLVE_RUN_DIR" --python "$ENVOLVE_PYTHON" \
    --max-requeues "$ENVOLVE_MAX_REQUEUES" --kill-after "$ENVOLVE_KILL_AFTER" -- "$@"
