import { Group, Select, Stack, Text, VisuallyHidden } from "@mantine/core";
import { structuredPatch } from "diff";
import { useMemo } from "react";
import type { Version } from "../api/types";
import { manifestText } from "../build/document";
import { useGet } from "../state/query";
import { Loaded, Panel } from "./basics";

/** mostEdits is how many lines that differ are looked for: the time grows with their square, and the tab stands still meanwhile. */
const mostEdits = 4000;

/** hunks gives the lines that differ between two texts, each group with three lines around it; nothing for too many. */
export function hunks(before: string, after: string): { at: number; lines: string[] }[] | undefined {
  return structuredPatch("", "", before, after, "", "", { context: 3, maxEditLength: mostEdits })?.hunks.map((h) => ({
    at: h.newStart,
    lines: h.lines.filter((l) => !l.startsWith("\\")),
  }));
}

/** VersionDiff shows how the manifest of one generation differs from that of another. Which ones is up to whoever shows it. */
export default function VersionDiff({
  path,
  generations,
  pair: [from, to],
  choose,
}: {
  path: string;
  generations: number[];
  pair: [number, number];
  choose: (pair: [number, number]) => void;
}) {
  const before = useGet<Version>(path + "/manifest", 0, { generation: String(from) });
  const after = useGet<Version>(path + "/manifest", 0, { generation: String(to) });
  const data = generations.map(String);
  return (
    <Panel title="Compare manifests">
      <Stack gap="sm">
        <Group>
          <Select
            label="From generation"
            data={data}
            value={String(from)}
            allowDeselect={false}
            onChange={(v) => choose([Number(v), to])}
          />
          <Select
            label="To generation"
            data={data}
            value={String(to)}
            allowDeselect={false}
            onChange={(v) => choose([from, Number(v)])}
          />
        </Group>
        <Loaded of={before}>
          {(old) => (
            <Loaded of={after}>
              {(now) => (
                <Lines before={manifestText(old.manifest)} after={manifestText(now.manifest)} from={from} to={to} />
              )}
            </Loaded>
          )}
        </Loaded>
      </Stack>
    </Panel>
  );
}

const words: Record<string, string> = { "+": "added: ", "-": "removed: " };

function Lines({ before, after, from, to }: { before: string; after: string; from: number; to: number }) {
  const of = useMemo(() => hunks(before, after), [before, after]);
  const label = `Manifest of generation ${to}, compared with ${from}`;
  if (!of) return <Text role="status">They differ in too many lines to be compared here.</Text>;
  if (of.length === 0) return <Text role="status">Their manifests are the same.</Text>;
  return (
    <div className="diff" tabIndex={0} role="region" aria-label={label}>
      {of.map((h) => (
        <pre key={h.at}>
          <span className="diff-line diff-at">from line {h.at}</span>
          {h.lines.map((line, n) => (
            <span key={n} className={`diff-line ${line[0] === "+" ? "diff-new" : line[0] === "-" ? "diff-old" : ""}`}>
              {words[line[0]!] && <VisuallyHidden>{words[line[0]!]}</VisuallyHidden>}
              {line}
            </span>
          ))}
        </pre>
      ))}
    </div>
  );
}
