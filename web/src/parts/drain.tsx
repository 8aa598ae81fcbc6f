import { Progress, Stack, Table, Text } from "@mantine/core";
import type { ClusterView, DrainView } from "../api/types";
import { ago, count } from "../format";
import { A, Panel } from "./basics";

/** Drain tells how far the drain of a worker or cluster is, and what stays and why. */
export function Drain({ d }: { d: DrainView | NonNullable<ClusterView["drain"]> }) {
  const text = d.done
    ? "All instances that can move have moved."
    : `${count(d.left, "instance")} still to leave, ${d.moving} of them being started elsewhere; ${count(d.ending, "old copy", "old copies")} being ended.`;
  return (
    <Panel title={d.done ? "Drained" : "Being drained"}>
      <Stack gap="xs">
        <Text size="sm" role="status">
          {text} Begun {ago(d.since)} ago, {d.parallel} at once{"to" in d && d.to && `, to ${d.to} where that can be`}.
        </Text>
        {!d.done && <Progress value={100} animated striped aria-label={text} />}
        {(d.stays ?? []).length > 0 && (
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Instances that stay">
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Stays</Table.Th>
                  <Table.Th>Why</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {d.stays!.map((s) => (
                  <Table.Tr key={s.instance}>
                    <Table.Td>
                      <A to={"/instances/" + encodeURIComponent(s.instance)}>{s.instance}</A>
                    </Table.Td>
                    <Table.Td>
                      {s.reason}
                      {s.tries && " (a place is looked for again and again)"}
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Stack>
    </Panel>
  );
}
