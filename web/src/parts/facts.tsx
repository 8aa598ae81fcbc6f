import { Alert, Group, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";
import type { Coordinate, CreditView } from "../api/types";
import { ago, clock } from "../format";
import { Panel } from "./basics";

/** Facts lists what is known of something by name. What is empty is left out. */
export function Facts({ rows }: { rows: [name: string, value: ReactNode][] }) {
  return (
    <Table withRowBorders={false} verticalSpacing={4}>
      <Table.Tbody>
        {rows
          .filter(([, v]) => v !== undefined && v !== null && v !== "" && v !== false)
          .map(([name, value]) => (
            <Table.Tr key={name}>
              <Table.Th fw={400} w={{ base: 110, xs: 160 }} style={{ verticalAlign: "top" }} c="dimmed">
                {name}
              </Table.Th>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{value}</Table.Td>
            </Table.Tr>
          ))}
      </Table.Tbody>
    </Table>
  );
}

/** Credit shows what speaks against what a cluster or worker says. */
export function Credit({ credit, actions }: { credit: CreditView | undefined; actions?: ReactNode }) {
  const marks = credit?.marks ?? [];
  return (
    <Panel title="Trust" actions={actions}>
      {credit?.quarantine && (
        <Alert color="red" variant="light" title="It gets no new instances" mb="sm">
          {credit.quarantine}
          {credit.since && <> Since {clock(credit.since)}</>}
          {credit.until && <>, until {clock(credit.until)} if nothing more comes</>}.
        </Alert>
      )}
      <Text size="sm" mb={marks.length ? "sm" : 0}>
        {!credit
          ? "No claims are disputed."
          : `When something is placed, its score counts for ${Math.round(credit.rank * 100)} %.`}
      </Text>
      {marks.length > 0 && (
        <div className="table-wrap" tabIndex={0} role="region" aria-label="Disputed claims">
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>In respect of</Table.Th>
                <Table.Th>What</Table.Th>
                <Table.Th ta="right">Times</Table.Th>
                <Table.Th ta="right">Against</Table.Th>
                <Table.Th ta="right">For</Table.Th>
                <Table.Th ta="right">Last, ago</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {marks.map((m) => (
                <Table.Tr key={m.kind}>
                  <Table.Td>{m.kind}</Table.Td>
                  <Table.Td>{m.text}</Table.Td>
                  <Table.Td ta="right">{m.marks}</Table.Td>
                  <Table.Td ta="right">{m.against.toFixed(1)}</Table.Td>
                  <Table.Td ta="right">{(m.for ?? 0).toFixed(1)}</Table.Td>
                  <Table.Td ta="right">{ago(m.last)}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </Panel>
  );
}

/** place tells where something is on the earth. */
export function place(l: { lat: number; lon: number } | undefined): string {
  if (!l) return "";
  return `${Math.abs(l.lat).toFixed(2)}° ${l.lat < 0 ? "S" : "N"}, ${Math.abs(l.lon).toFixed(2)}° ${l.lon < 0 ? "W" : "E"}`;
}

/** inNetwork tells a place in the network, by its coordinates in milliseconds and how sure they are. */
export function inNetwork(c: Coordinate | undefined): string {
  if (!c) return "";
  const ms = (v: number) => (Math.round(v * 10) / 10 || 0).toFixed(1); // no -0
  return `${(c.vec ?? []).map(ms).join(", ")} ms, height ${ms(c.height)} ms, ±${Math.round(c.error * 100)} %`;
}

/** Words shows a few words beside each other. */
export function Words({ list }: { list: readonly string[] | null | undefined }) {
  if (!list?.length) return null;
  return (
    <Group gap={6}>
      {list.map((w) => (
        <code key={w}>{w}</code>
      ))}
    </Group>
  );
}
