import { SimpleGrid, Text, Title } from "@mantine/core";
import { Empty } from "../parts/basics";
import { type Figure, figureText } from "./report";

/** most is how many plots are drawn; a filter leads to the others. */
const most = 24;

/** Plot draws a bar for each place of a case, with its interval. The table says the same to who cannot see it. */
export function Plot({ figures }: { figures: Figure[] }) {
  const cases = new Map<string, Figure[]>();
  for (const f of figures) {
    if (f.value === undefined || f.value < 0) continue;
    const list = cases.get(f.id);
    if (list) list.push(f);
    else cases.set(f.id, [f]);
  }
  if (cases.size === 0) return <Empty>There is nothing to draw.</Empty>;
  return (
    <>
      <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }}>
        {[...cases].slice(0, most).map(([id, list]) => (
          <Bars key={id} id={id} list={list} />
        ))}
      </SimpleGrid>
      {cases.size > most && (
        <Text size="sm" mt="sm">
          The first {most} of {cases.size} cases are drawn; choose a group or search for the others.
        </Text>
      )}
    </>
  );
}

function Bars({ id, list }: { id: string; list: Figure[] }) {
  const top = Math.max(...list.map((f) => Math.max(f.value!, f.high ?? 0))) || 1;
  const x = (v: number) => (100 * Math.max(0, v)) / top;
  const { unit, better } = list[0]!;
  return (
    <div>
      <Title order={3} size="h6" style={{ overflowWrap: "anywhere" }}>
        {id}
      </Title>
      <Text size="xs" c="dimmed" mb={4}>
        {unit && unit + ", "}
        {better} is better
      </Text>
      {list.map((f, n) => (
        <div key={n} className="bench-bar">
          <span title={f.place}>{f.place}</span>
          <svg viewBox="0 0 100 16" preserveAspectRatio="none" width="100%" height="16" aria-hidden>
            <rect x="0" y="3" width={x(f.value!)} height="10" fill="var(--mantine-primary-color-filled)" />
            {f.low !== undefined && f.high !== undefined && (
              <g stroke="var(--mantine-color-text)" strokeWidth="1.5">
                {[x(f.low), x(f.high)].map((at, k) => (
                  <line key={k} x1={at} x2={at} y1="1" y2="15" vectorEffect="non-scaling-stroke" />
                ))}
                <line x1={x(f.low)} x2={x(f.high)} y1="8" y2="8" vectorEffect="non-scaling-stroke" />
              </g>
            )}
          </svg>
          <span className="bench-value">{figureText(f.value)}</span>
        </div>
      ))}
    </div>
  );
}
