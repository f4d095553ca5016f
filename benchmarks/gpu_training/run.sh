#!/bin/bash
# On the machine with the GPU, in the project's folder: keep the packs that are there, and start what is not running.
#   run.sh keep            copy the packs to /tmp/packs, from which the trainings read them
#   run.sh start WHAT...   start trainings, each as WHAT:SECONDS: mobile, nano, people
#   run.sh wait SECONDS    until all are finished, or one has failed; then print their figures
set -u
mkdir -p /tmp/packs /tmp/results
case $1 in
keep)
  for file in .gpu/*/*; do
    [ -e "/tmp/packs/$(basename "$file")" ] || { cp "$file" /tmp/packs/.new && mv /tmp/packs/.new "/tmp/packs/$(basename "$file")"; }
  done
  ls -la /tmp/packs ;;
start)
  rm -rf /tmp/code && mkdir /tmp/code && cp -r src benchmarks /tmp/code/
  cd /tmp/code/benchmarks
  export PYTHONPATH=/tmp/code/src:/tmp/code/benchmarks:/tmp/site OMP_NUM_THREADS=4 PYTHONUNBUFFERED=1
  shift
  for each in "$@"; do
    what=${each%%:*} seconds=${each##*:}
    case $what in
    people) command="gpu_training/people.py /tmp/packs /tmp/results/people --only ${PEOPLE:-mobile narrow nano}" ;;
    *) command="gpu_training/pets.py /tmp/packs /tmp/results/$what $what" ;;
    esac
    setsid nohup bash -c "python3 $command --until $seconds; echo ended \$? > /tmp/results/$what.ended" > "/tmp/results/$what.log" 2>&1 &
  done
  sleep "${PAUSE:-1}"
  tail -n 3 /tmp/results/*.log ;;
wait)
  started=$SECONDS
  while [ $((SECONDS - started)) -lt "$2" ]; do
    grep -qv "ended 0" /tmp/results/*.ended 2>/dev/null && break
    [ "$(ls /tmp/results/*.ended 2>/dev/null | wc -l)" -eq "$(ls /tmp/results/*.log | wc -l)" ] && break
    sleep 1
  done
  cat /tmp/results/*.ended 2>/dev/null
  for log in /tmp/results/*.log; do echo "== $log"; tail -c "${TAIL:-3000}" "$log"; done ;;
esac
