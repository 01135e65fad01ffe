#!/usr/bin/env bash
# Runs nvcc and stores what ptxas reports about each kernel (tests/nn/cuda/ptxas_budget.py reads it): nvcc.sh REPORT COMMAND...
set -uo pipefail
report=$1
shift
status=0
"$@" 2>"$report" || status=$?
grep -Ev '^ptxas info|^ +[0-9]+ bytes stack frame' "$report" >&2
exit $status
