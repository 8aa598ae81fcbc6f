import "@mantine/charts/styles.css";
import { AreaChart } from "@mantine/charts";
import { Table, Text, VisuallyHidden } from "@mantine/core";
import { Panel } from "./basics";

/** Sample is what a chart has of one moment. A series without a value there has a gap. */
export interface Sample {
  time: string;
  at: number;
}

const shades = ["sea.7", "orange.7"];

/** latest says what a chart's series are now. */
export function latest<P extends Sample>(
  points: P[],
  series: [keyof P & string, string][],
  format: (n: number) => string,
): string {
  return series
    .map(([k, label]) => {
      const now = points.at(-1)?.[k] as number | undefined;
      return now === undefined ? `${label}: not known` : `${label}: ${format(now)}`;
    })
    .join(", ");
}

/**
 * Chart draws series over time below a line that says in words what matters. Who does not see the drawing gets a table of the points in
 * rows, which stands in its place.
 */
export function Chart<P extends Sample>({
  title,
  caption,
  words,
  points,
  rows,
  series,
  format,
  limit,
}: {
  title: string;
  caption: string;
  words: string;
  points: P[];
  rows: P[];
  series: [keyof P & string, string][];
  format: (n: number) => string;
  limit?: number;
}) {
  const most = Math.max(0, ...points.map((p) => (p[series[0]![0]] as number | undefined) ?? 0));
  return (
    <Panel title={title}>
      <Text size="sm" mb="xs">
        {words}
        {limit ? `, limit ${format(limit)}` : ""}
      </Text>
      <div aria-hidden>
        <AreaChart
          h={180}
          data={points as unknown as Record<string, unknown>[]}
          dataKey="time"
          series={series.map(([name, label], n) => ({ name, label, color: shades[n]! }))}
          curveType="linear"
          withDots={false}
          connectNulls={false}
          valueFormatter={format}
          yAxisProps={{ width: 80 }}
          referenceLines={limit && most > limit / 4 ? [{ y: limit, label: "limit", color: "red.7" }] : undefined}
          areaChartProps={{ throttleDelay: 50 }}
          areaProps={{ isAnimationActive: false }}
        />
      </div>
      <VisuallyHidden>
        <Table>
          <Table.Caption>{caption}</Table.Caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Time</Table.Th>
              {series.map(([k, label]) => (
                <Table.Th key={k}>{label}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((p) => (
              <Table.Tr key={p.at}>
                <Table.Th>{p.time}</Table.Th>
                {series.map(([k]) => (
                  <Table.Td key={k}>{p[k] === undefined ? "not known" : format(p[k] as number)}</Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </VisuallyHidden>
    </Panel>
  );
}
