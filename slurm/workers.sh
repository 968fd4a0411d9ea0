#!/usr/bin/env bash
# The workers of a run, one per array index: BOHB_ID = index / workers per master, ID = index % workers per master.
# slurm/submit.py submits this. By hand, for 2 masters with 3 workers each:
#
#   ENVOLVE_RUN_DIR=results/my_run sbatch --array=0-5 slurm/workers.sh
#
# Workers of a study need its name after the script (... slurm/workers.sh STUDY.yaml) if it uses files of your own.
#
# With ENVOLVE_WORKERS_PER_TASK=K one index has K workers of a master, which share its CPUs, and the last of a master's
# indices what is left: BOHB_ID = index / indices per master. For 2 masters with 5 workers each, in threes:
#
#   ENVOLVE_RUN_DIR=results/my_run ENVOLVE_WORKERS_PER_MASTER=5 ENVOLVE_WORKERS_PER_TASK=3 \
#       sbatch --array=0-3 --cpus-per-task=3 slurm/workers.sh
#
# Options on sbatch's command line go before those that stand here.
#SBATCH --job-name=envolve-workers
#SBATCH --array=0-2
#SBATCH --cpus-per-task=1
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x_%A_%a.log
set -euo pipefail
: "${SLURM_ARRAY_TASK_ID:?found none; send this script with sbatch --array=0-2}"

ENVOLVE_ROOT=${ENVOLVE_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}      # the repository
ENVOLVE_RUN_DIR=${ENVOLVE_RUN_DIR:-results/slurm_run}        # folder of the run, seen by all nodes
ENVOLVE_WORKERS_PER_MASTER=${ENVOLVE_WORKERS_PER_MASTER:-3}
ENVOLVE_WORKERS_PER_TASK=${ENVOLVE_WORKERS_PER_TASK:-1}
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
CPUS=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((CPUS > ENVOLVE_WORKERS_PER_TASK ? CPUS / ENVOLVE_WORKERS_PER_TASK : 1))}

INDEX=$((SLURM_ARRAY_TASK_ID + ENVOLVE_FIRST_INDEX))
TASKS=$(((ENVOLVE_WORKERS_PER_MASTER + ENVOLVE_WORKERS_PER_TASK - 1) / ENVOLVE_WORKERS_PER_TASK)) # of one master
BOHB_ID=$((INDEX / TASKS + ENVOLVE_FIRST_BOHB_ID))
ID=$((INDEX % TASKS * ENVOLVE_WORKERS_PER_TASK))
LEFT=$((ENVOLVE_WORKERS_PER_MASTER - ID))
COUNT=$((LEFT < ENVOLVE_WORKERS_PER_TASK ? LEFT : ENVOLVE_WORKERS_PER_TASK))
exec "$ENVOLVE_PYTHON" "$ENVOLVE_ROOT/slurm/task.py" --role worker --bohb-id "$BOHB_ID" --worker "$ID" \
    --workers "$COUNT" --index "$((BOHB_ID * TASKS + INDEX % TASKS))" --run-dir "$ENVOLVE_RUN_DIR" \
    --python "$ENVOLVE_PYTHON" --max-requeues "$ENVOLVE_MAX_REQUEUES" --kill-after "$ENVOLVE_KILL_AFTER" -- "$@"
