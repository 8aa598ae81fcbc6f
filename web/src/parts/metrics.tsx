import { SimpleGrid } from "@mantine/core";
import { useEffect, useState } from "react";
import { bytes, cores, parseBytes } from "../format";
import { useGet } from "../state/query";
import { Empty, Loaded, Panel } from "./basics";
import { Chart, latest } from "./chart";

interface Stats {
  container: string;
  cpuLimit?: number;
  rxBytes?: number;
  txBytes?: number;
  stats: {
    at: string;
    cpu: number;
    throttled?: number;
    memory: string | number;
    memoryWorkingSet?: string | number;
    memoryLimit?: string | number;
    oomKills?: number;
    pids?: number;
    diskRead?: string | number;
    diskWrite?: string | number;
  };
}

interface Point {
  time: string;
  at: number;
  cpu: number;
  memory: number;
  read: number;
  write: number;
  received: number;
  sent: number;
}

const every = 2;
const most = 150;

/** Metrics draws what an instance uses, from when the page was opened. */
export default function Metrics({ id }: { id: string }) {
  const q = useGet<Stats[]>(`/v1/instances/${encodeURIComponent(id)}/stats`, every);
  const [points, setPoints] = useState<Point[]>([]);
  const [last, setLast] = useState<Stats>();
  useEffect(() => setPoints([]), [id]);
  useEffect(() => {
    const s = q.data?.find((c) => c.container === "main") ?? q.data?.[0];
    if (!s) return;
    setLast((old) => {
      const seconds = old ? (Date.parse(s.stats.at) - Date.parse(old.stats.at)) / 1000 : 0;
      if (old && seconds > 0) {
        const rate = (now?: string | number, then?: string | number) =>
          Math.max(0, (parseBytes(now) - parseBytes(then)) / seconds);
        const p: Point = {
          time: new Date(s.stats.at).toLocaleTimeString(),
          at: Date.parse(s.stats.at),
          cpu: Math.max(0, (s.stats.cpu - old.stats.cpu) / 1e9 / seconds),
          memory: parseBytes(s.stats.memoryWorkingSet ?? s.stats.memory),
          read: rate(s.stats.diskRead, old.stats.diskRead),
          write: rate(s.stats.diskWrite, old.stats.diskWrite),
          received: rate(s.rxBytes, old.rxBytes),
          sent: rate(s.txBytes, old.txBytes),
        };
        setPoints((list) => (list.at(-1)?.at === p.at ? list : [...list, p].slice(-most)));
      }
      return s;
    });
  }, [q.data]);
  const perSecond = (n: number) => bytes(n) + "/s";
  const charts: [string, (n: number) => string, [keyof Point & string, string][], number?][] = [
    ["Processors", cores, [["cpu", "In use"]], last?.cpuLimit],
    ["Memory", bytes, [["memory", "Working set"]], parseBytes(last?.stats.memoryLimit) || undefined],
    [
      "Network",
      perSecond,
      [
        ["received", "Received"],
        ["sent", "Sent"],
      ],
    ],
    [
      "Disk",
      perSecond,
      [
        ["read", "Read"],
        ["write", "Written"],
      ],
    ],
  ];
  return (
    <Loaded of={q}>
      {() =>
        points.length === 0 ? (
          <Panel>
            <Empty>Measuring …</Empty>
          </Panel>
        ) : (
          <SimpleGrid cols={{ base: 1, lg: 2 }}>
            {charts.map(([title, format, series, limit]) => (
              <Chart
                key={title}
                title={title}
                caption={title + ", the last values"}
                words={latest(points, series, format)}
                points={points}
                rows={points.slice(-5)}
                series={series}
                format={format}
                limit={limit}
              />
            ))}
          </SimpleGrid>
        )
      }
    </Loaded>
  );
}
