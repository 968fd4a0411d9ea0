#!/usr/bin/env bash
# Masters and workers in one job on one node, which split its CPUs among them:
#
#   ENVOLVE_RUN_DIR=results/my_run sbatch --cpus-per-task=16 slurm/single_node.sh CONFIG.yaml
#   ENVOLVE_RUN_DIR=results/my_study ENVOLVE_MASTERS=2 sbatch --cpus-per-task=16 slurm/single_node.sh STUDY.yaml
#
# Also without SLURM, on all CPUs: ENVOLVE_RUN_DIR=results/my_run bash slurm/single_node.sh CONFIG.yaml
#SBATCH --job-name=envolve-node
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x_%j.log
set -euo pipefail

ENVOLVE_ROOT=${ENVOLVE_ROOT:-${SLURM_SUBMIT_DIR:-$PWD}}      # the repository
ENVOLVE_RUN_DIR=${ENVOLVE_RUN_DIR:-results/slurm_run}        # folder of the run
ENVOLVE_MASTERS=${ENVOLVE_MASTERS:-1}
ENVOLVE_WORKERS_PER_MASTER=${ENVOLVE_WORKERS_PER_MASTER:-}   # empty: one per CPU
ENVOLVE_PYTHON=${ENVOLVE_PYTHON:-$ENVOLVE_ROOT/.venv/bin/python}
ENVOLVE_SETUP=${ENVOLVE_SETUP:-}                             # a file of bash commands to run first (module load ...)
ENVOLVE_MAX_REQUEUES=${ENVOLVE_MAX_REQUEUES:-100}
ENVOLVE_KILL_AFTER=${ENVOLVE_KILL_AFTER:-60}                 # seconds from SIGTERM to SIGKILL; less than --signal's

trap '' USR1 # until task.py waits for it
if [ -n "$ENVOLVE_SETUP" ]; then
    # shellcheck source=/dev/null
    source "$ENVOLVE_SETUP"
fi

exec "$ENVOLVE_PYTHON" "$ENVOLVE_ROOT/slurm/task.py" --role node --run-dir "$ENVOLVE_RUN_DIR" \
    --max-requeues "$ENVOLVE_MAX_REQUEUES" --kill-after "$((ENVOLVE_KILL_AFTER + 10))" -- \
    "$ENVOLVE_PYTHON" "$ENVOLVE_ROOT/slurm/single_node.py" --run-dir "$ENVOLVE_RUN_DIR" \
    --masters "$ENVOLVE_MASTERS" ${ENVOLVE_WORKERS_PER_MASTER:+--workers "$ENVOLVE_WORKERS_PER_MASTER"} \
    --python "$ENVOLVE_PYTHON" --kill-after "$ENVOLVE_KILL_AFTER" -- "$@"
