import { Button, Group, Stack, Table, Text, VisuallyHidden } from "@mantine/core";
import { Suspense, useEffect, useState } from "react";
import type { AppView } from "../api/types";
import { clock } from "../format";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { changes, previous } from "../state/versions";
import { Loaded, Panel, useActs } from "./basics";
import { later } from "./later";

const VersionDiff = later(() => import("./versiondiff"));

/** useReadApp reads what a watch leaves out, manifest and versions, and reads it again when there is a new generation. */
export function useReadApp<T>(path: string, generation: number) {
  const q = useGet<T>(path);
  const { reload } = q;
  useEffect(reload, [reload, generation]);
  return q;
}

/** Versions lists those of an application that are kept, compares two of them, and goes back to one. */
export function Versions({
  path,
  name,
  write,
  generation,
}: {
  path: string;
  name: string;
  write: boolean;
  generation: number;
}) {
  const { client } = useSession();
  const { ask } = useActs();
  const q = useReadApp<AppView>(path, generation);
  const [pair, setPair] = useState<[number, number]>();
  const kept = (q.data?.revisions ?? []).filter((r) => !r.site).map((r) => r.generation);
  return (
    <Stack>
      <Panel>
        <Loaded of={q}>
          {(a) => (
            <div className="table-wrap" tabIndex={0} role="region" aria-label="Versions">
              <Table miw={680}>
                <Table.Thead>
                  <Table.Tr>
                    <Table.Th>Generation</Table.Th>
                    <Table.Th>When</Table.Th>
                    <Table.Th>By</Table.Th>
                    <Table.Th>Images</Table.Th>
                    <Table.Th>Changed</Table.Th>
                    <Table.Th>
                      <VisuallyHidden>Actions</VisuallyHidden>
                    </Table.Th>
                  </Table.Tr>
                </Table.Thead>
                <Table.Tbody>
                  {(a.revisions ?? []).map((r, _, list) => (
                    <Table.Tr key={r.generation + (r.site ?? "")}>
                      <Table.Td>
                        {r.generation}
                        {r.site && <Text size="xs">at {r.site}</Text>}
                        {!r.site && r.generation === generation && <Text size="xs">now</Text>}
                      </Table.Td>
                      <Table.Td>{clock(r.at)}</Table.Td>
                      <Table.Td>
                        {r.author ?? r.site ?? "–"}
                        {r.why && <Text size="xs">{r.why}</Text>}
                      </Table.Td>
                      <Table.Td className="mono" style={{ overflowWrap: "anywhere" }}>
                        {(r.services ?? []).map((s) => (
                          <div key={s.name}>
                            {s.name} {s.image ?? s.revision}
                          </div>
                        ))}
                      </Table.Td>
                      <Table.Td style={{ overflowWrap: "anywhere" }}>
                        {changes(r, previous(r, list)).map((c) => (
                          <div key={c}>{c}</div>
                        ))}
                      </Table.Td>
                      <Table.Td ta="right">
                        <Group gap="xs" justify="flex-end" wrap="nowrap">
                          {!r.site && kept.length > 1 && (
                            <Button
                              size="xs"
                              variant="default"
                              aria-label={`Compare generation ${r.generation}`}
                              onClick={() => setPair([before(kept, r.generation), r.generation])}
                            >
                              Compare
                            </Button>
                          )}
                          {write && r.site && (
                            <Button
                              size="xs"
                              variant="default"
                              onClick={() =>
                                ask({
                                  title: `Adopt what ${r.site} was changed to?`,
                                  text: `${name} becomes everywhere what it was changed to at ${r.site}; its instances are replaced as its update policy says.`,
                                  action: "Adopt",
                                  run: () =>
                                    client.call("POST", path + "/rollout", {
                                      body: { action: "undo", amendment: r.site },
                                    }),
                                  done: `What ${r.site} was changed to is adopted`,
                                })
                              }
                            >
                              Adopt
                            </Button>
                          )}
                          {write && !r.site && r.generation !== generation && (
                            <Button
                              size="xs"
                              variant="default"
                              onClick={() =>
                                ask({
                                  title: `Roll back to generation ${r.generation}?`,
                                  text: `${name} becomes again what it was then; its instances are replaced as its update policy says.`,
                                  action: "Roll back",
                                  run: () =>
                                    client.call("POST", path + "/rollout", {
                                      body: { action: "undo", to: r.generation },
                                    }),
                                  done: `Rolling back to generation ${r.generation}`,
                                })
                              }
                            >
                              Roll back
                            </Button>
                          )}
                        </Group>
                      </Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </div>
          )}
        </Loaded>
      </Panel>
      {pair && (
        <Suspense fallback={<Text>Loading …</Text>}>
          <VersionDiff path={path} generations={kept} pair={pair} choose={setPair} />
        </Suspense>
      )}
    </Stack>
  );
}

/** before gives the generation before one, or of the first the one after it. */
function before(kept: number[], generation: number): number {
  const sorted = [...kept].sort((a, b) => a - b);
  const at = sorted.indexOf(generation);
  return sorted[at - 1] ?? sorted[at + 1] ?? generation;
}
