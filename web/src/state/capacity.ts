import type { ClassAggregate, ClusterView } from "../api/types";

/** The places of the aggregates that a cluster reports, as sched.Dimensions has them. */
const cpuAt = 0;
const memoryAt = 1;

/** classRoom is what the workers of a class have left together, processors and bytes of memory, and the mean memory of each. */
export function classRoom(k: ClassAggregate): { cpu: number; memory: number; each: number } {
  return {
    cpu: (k.available?.[cpuAt]?.sum ?? 0) / 1000,
    memory: k.available?.[memoryAt]?.sum ?? 0,
    each: k.available?.[memoryAt]?.mean ?? 0,
  };
}

/** free is what the workers of a cluster have left together: processors, and bytes of memory. */
export function free(c: ClusterView): { cpu: number; memory: number; workers: number } {
  const sum = { cpu: 0, memory: 0, workers: 0 };
  for (const k of c.report.classes ?? []) {
    const room = classRoom(k);
    sum.cpu += room.cpu;
    sum.memory += room.memory;
    sum.workers += k.workers;
  }
  return sum;
}
