import "@mantine/charts/styles.css";
import { AreaChart } from "@mantine/charts";
import { SimpleGrid, Table, Text, VisuallyHidden } from "@mantine/core";
import { useEffect, useState } from "react";
import { bytes, cores, parseBytes } from "../format";
import { useGet } from "../state/query";
import { Empty, Loaded, Panel } from "./basics";

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
  return (
    <Loaded of={q}>
      {() =>
        points.length === 0 ? (
          <Panel>
            <Empty>Measuring …</Empty>
          </Panel>
        ) : (
          <SimpleGrid cols={{ base: 1, lg: 2 }}>
            <Chart
              title="Processors"
              points={points}
              format={cores}
              series={[["cpu", "In use"]]}
              limit={last?.cpuLimit}
            />
            <Chart
              title="Memory"
              points={points}
              format={bytes}
              series={[["memory", "Working set"]]}
              limit={parseBytes(last?.stats.memoryLimit) || undefined}
            />
            <Chart
              title="Network"
              points={points}
              format={perSecond}
              series={[
                ["received", "Received"],
                ["sent", "Sent"],
              ]}
            />
            <Chart
              title="Disk"
              points={points}
              format={perSecond}
              series={[
                ["read", "Read"],
                ["write", "Written"],
              ]}
            />
          </SimpleGrid>
        )
      }
    </Loaded>
  );
}

const shades = ["sea.7", "orange.7"];

function Chart({
  title,
  points,
  series,
  format,
  limit,
}: {
  title: string;
  points: Point[];
  series: [keyof Point & string, string][];
  format: (n: number) => string;
  limit?: number;
}) {
  const now = points.at(-1)!;
  return (
    <Panel title={title}>
      <Text size="sm" mb="xs">
        {series.map(([k, label]) => `${label}: ${format(now[k] as number)}`).join(", ")}
        {limit ? `, limit ${format(limit)}` : ""}
      </Text>
      <div aria-hidden>
        <AreaChart
          h={180}
          data={points}
          dataKey="time"
          series={series.map(([name, label], n) => ({ name, label, color: shades[n]! }))}
          curveType="linear"
          withDots={false}
          valueFormatter={format}
          yAxisProps={{ width: 80 }}
          referenceLines={
            limit && now && (now[series[0]![0]] as number) > limit / 4
              ? [{ y: limit, label: "limit", color: "red.7" }]
              : undefined
          }
          areaChartProps={{ throttleDelay: 50 }}
          areaProps={{ isAnimationActive: false }}
        />
      </div>
      <VisuallyHidden>
        <Table>
          <Table.Caption>{title}, the last values</Table.Caption>
          <Table.Tbody>
            {points.slice(-5).map((p) => (
              <Table.Tr key={p.at}>
                <Table.Th>{p.time}</Table.Th>
                {series.map(([k]) => (
                  <Table.Td key={k}>{format(p[k] as number)}</Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </VisuallyHidden>
    </Panel>
  );
}
