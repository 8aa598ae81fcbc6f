import { Group, SegmentedControl, SimpleGrid, Stack, Text } from "@mantine/core";
import { useMemo, useState } from "react";
import type { History, HistoryPoint } from "../api/types";
import { bytes, cores, count, parseBytes, parseCPU } from "../format";
import { useGet } from "../state/query";
import { Empty, Loaded, Panel } from "./basics";
import { Chart, type Sample } from "./chart";

export interface Past extends Sample {
  cpu?: number;
  memory?: number;
  storage?: number;
  instances?: number;
  restarts?: number;
  rtt?: number;
  workers?: number;
}

/**
 * past gives a slot for each step from the first point to the last that is over now, or to the last point if nobody says when that is. A
 * slot of which nothing is known has no values.
 */
export function past(points: HistoryPoint[], stepMinutes: number, now = 0): Past[] {
  const step = stepMinutes * 60_000;
  const out: Past[] = [];
  for (const p of points) {
    const at = Date.parse(p.at);
    for (let gap = (out.at(-1)?.at ?? at) + step; gap < at; gap += step) out.push({ at: gap, time: hour(gap) });
    out.push({
      at,
      time: hour(at),
      cpu: parseCPU(p.cpu as string | number),
      memory: parseBytes(p.memory as string | number),
      storage: parseBytes(p.storage as string | number),
      instances: p.instances,
      restarts: p.restarts ?? 0,
      rtt: p.rttMs,
      workers: p.workers,
    });
  }
  const last = out.at(-1);
  // A point comes within its minute. A clock that is wrong here adds no more than a day.
  const end = Math.min(now - step - 60_000, (out[0]?.at ?? 0) + day);
  for (let gap = (last?.at ?? end) + step; gap <= end; gap += step) out.push({ at: gap, time: hour(gap) });
  return out;
}

const day = 24 * 60 * 60_000;

const hour = (at: number) => new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });

/** about tells what somebody would read off a drawing: the last value, with its time if it is not of now, and the most with its time. */
export function about(points: Past[], key: keyof Past, format: (n: number) => string, least = false): string {
  const known = points.filter((p) => p[key] !== undefined);
  const last = known.at(-1);
  if (!last) return "Not known";
  const value = (p: Past) => p[key] as number;
  const far = known.reduce((a, b) => ((least ? value(b) < value(a) : value(b) > value(a)) ? b : a));
  const then =
    last === points.at(-1) ? `Last: ${format(value(last))}` : `Last known: ${format(value(last))} at ${last.time}`;
  return `${then}, ${least ? "fewest" : "most"}: ${format(value(far))} at ${far.time}`;
}

const spans = [
  { label: "6 hours", value: "6" },
  { label: "24 hours", value: "24" },
];

type Drawn = [string, keyof Past & string, string, (n: number) => string, number?];

const whole = (n: number) => Math.round(n).toLocaleString();

/** HistoryOf draws what a worker, or the whole site without a worker, used in the last day. The site keeps a point a minute. */
export default function HistoryOf({ worker }: { worker?: string }) {
  const [hours, setHours] = useState("24");
  const path = worker ? `/v1/workers/${encodeURIComponent(worker)}/history` : "/v1/history";
  const q = useGet<History>(path, 60, { hours, step: hours === "24" ? "10" : "2" });
  const asked = useMemo(() => (q.data ? Date.now() : 0), [q.data]);
  return (
    <Stack>
      <Group justify="space-between">
        <Text size="sm" c="dimmed">
          What {worker ? "the whole machine" : "the site's machines together"} used. The site keeps one day of it.
        </Text>
        <SegmentedControl data={spans} value={hours} onChange={setHours} aria-label="How far back" />
      </Group>
      <Loaded of={q}>
        {(h) => {
          const s = h.series?.[0];
          const points = past(s?.points ?? [], h.stepMinutes, asked);
          if (!s || points.length === 0)
            return (
              <Panel>
                <Empty>
                  {worker
                    ? "Nothing is known of it yet: the first point comes with its first minute, and a site keeps those of 64 workers."
                    : "Nothing is known yet: the first point comes within a minute."}
                </Empty>
              </Panel>
            );
          const restarts = points.reduce((n, p) => n + (p.restarts ?? 0), 0);
          const gaps = points.filter((p) => p.cpu === undefined).length;
          const all: Drawn[] = [
            ["Processors", "cpu", "In use", cores, parseCPU(s.capacity.cpu as string) || undefined],
            ["Memory", "memory", "In use", bytes, parseBytes(s.capacity.memory as string) || undefined],
            ["Disk", "storage", "In use", bytes],
            [
              "Round trip " + (worker ? "to its site" : "to the root"),
              "rtt",
              "Round trip",
              (n) => n.toFixed(1) + " ms",
            ],
            ["Instances", "instances", "Running", whole],
            // Of workers that were away the sums have nothing.
            ...(worker ? [] : [["Workers", "workers", "In touch", whole] as Drawn]),
            ["Restarts", "restarts", "Restarts", whole],
          ];
          return (
            <>
              {gaps > 0 && (
                <Text size="sm" role="status">
                  Of {count(gaps * h.stepMinutes, "minute")} nothing is known:{" "}
                  {worker
                    ? "it was not there to be asked."
                    : "no worker was there to be asked, or the site did not run."}
                </Text>
              )}
              <SimpleGrid cols={{ base: 1, lg: 2 }}>
                {all
                  .filter(([, key]) => key !== "rtt" || points.some((p) => p.rtt !== undefined))
                  .map(([title, key, label, format, limit]) => (
                    <Chart
                      key={key}
                      title={title}
                      caption={`${title}, hour by hour`}
                      words={
                        key === "restarts"
                          ? `${count(restarts, "restart")} of instances in all`
                          : about(points, key, format, key === "instances" || key === "workers")
                      }
                      points={points}
                      rows={hourly(points, h.stepMinutes)}
                      series={[[key, label]]}
                      format={format}
                      limit={limit}
                    />
                  ))}
              </SimpleGrid>
              {h.left ? (
                <Text size="sm" c="dimmed">
                  {count(h.left, "worker has", "workers have")} no history of {h.left === 1 ? "its" : "their"} own; the
                  sums have {h.left === 1 ? "it" : "them"}.
                </Text>
              ) : null}
            </>
          );
        }}
      </Loaded>
    </Stack>
  );
}

/** hourly picks the point of each hour, and the last. */
function hourly(points: Past[], stepMinutes: number): Past[] {
  const each = Math.max(1, Math.round(60 / stepMinutes));
  return points.filter((_, n) => (points.length - 1 - n) % each === 0);
}
