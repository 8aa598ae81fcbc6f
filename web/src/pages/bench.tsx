import {
  Alert,
  Badge,
  Box,
  Button,
  FileButton,
  Group,
  MultiSelect,
  Paper,
  Select,
  SimpleGrid,
  Stack,
  Table,
  Tabs,
  Text,
  TextInput,
} from "@mantine/core";
import { type DragEvent, useDeferredValue, useMemo, useState } from "react";
import { Plot } from "../bench/plot";
import {
  changes,
  type Figure,
  figureText,
  largest,
  otherMachine,
  parseReport,
  percent,
  type Report,
} from "../bench/report";
import { bytes, count, span } from "../format";
import { IconAlertTriangle, IconSearch, IconUpload } from "../icons";
import { Empty, Page, Panel } from "../parts/basics";

/** most is how many rows a table shows; a filter finds the others. */
const most = 1000;

/** Bench shows reports of `skerry bench` from the user's own disk; nothing of them is sent anywhere. */
export default function Bench() {
  const [reports, setReports] = useState<Report[]>([]);
  const [errors, setErrors] = useState<string[]>([]);
  const [over, setOver] = useState(false);
  const [tab, setTab] = useState<string | null>(null);
  const open = async (files: File[]) => {
    const good: Report[] = [];
    const bad: string[] = [];
    for (const f of files) {
      try {
        if (f.size > largest) throw new Error(`${f.name} has ${bytes(f.size)}, and ${bytes(largest)} are the most`);
        good.push(parseReport(f.name, await f.text()));
      } catch (e) {
        bad.push(e instanceof Error ? e.message : String(e));
      }
    }
    setErrors(bad);
    if (good.length === 0) return;
    setReports((old) => {
      const taken = new Set(old.map((r) => r.name));
      for (const r of good) {
        const name = r.name;
        for (let n = 2; taken.has(r.name); n++) r.name = `${name} (${n})`;
        taken.add(r.name);
      }
      return [...old, ...good];
    });
    setTab(good[0]!.name);
  };
  const drop = (e: DragEvent) => {
    e.preventDefault();
    setOver(false);
    void open([...e.dataTransfer.files]);
  };
  const close = (r: Report) => {
    const rest = reports.filter((x) => x !== r);
    setReports(rest);
    setTab(rest[0]?.name ?? null);
  };
  const button = (
    <FileButton onChange={(f) => void open(f)} accept=".json,application/json" multiple>
      {(props) => (
        <Button {...props} leftSection={<IconUpload size={16} aria-hidden />}>
          Open reports
        </Button>
      )}
    </FileButton>
  );
  return (
    <Box
      onDragOver={(e) => {
        e.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <Page title="Bench reports" sub="Read from your disk: nothing is uploaded" actions={reports.length > 0 && button}>
        {errors.map((e) => (
          <Alert key={e} color="red" variant="light" role="alert" icon={<IconAlertTriangle aria-hidden />} title={e} />
        ))}
        {reports.length === 0 || over ? (
          <Paper withBorder p="xl" radius="md" style={{ borderStyle: "dashed", borderWidth: 2 }}>
            <Stack align="center">
              <Text ta="center">
                {over
                  ? "Drop to open"
                  : "Drop JSON files of skerry bench runtime, interference, orchestrator, network or schedule here, or"}
              </Text>
              {!over && button}
            </Stack>
          </Paper>
        ) : null}
        {reports.length > 0 && (
          <Tabs value={tab} onChange={setTab} keepMounted={false}>
            <Tabs.List mb="md">
              {reports.map((r) => (
                <Tabs.Tab key={r.name} value={r.name}>
                  {r.name}
                </Tabs.Tab>
              ))}
              {reports.length > 1 && <Tabs.Tab value="//compare">Compare</Tabs.Tab>}
            </Tabs.List>
            {reports.map((r) => (
              <Tabs.Panel key={r.name} value={r.name}>
                <Shown report={r} onClose={() => close(r)} />
              </Tabs.Panel>
            ))}
            <Tabs.Panel value="//compare">
              <Compared reports={reports} />
            </Tabs.Panel>
          </Tabs>
        )}
      </Page>
    </Box>
  );
}

/** useFilter picks figures by text, group and place. */
function useFilter(figures: Figure[]) {
  const [text, setText] = useState("");
  const [group, setGroup] = useState<string | null>(null);
  const [places, setPlaces] = useState<string[]>([]);
  const want = useDeferredValue(text.trim().toLowerCase());
  const groups = useMemo(() => [...new Set(figures.map((f) => f.group))].filter(Boolean), [figures]);
  const all = useMemo(() => [...new Set(figures.map((f) => f.place))].filter(Boolean), [figures]);
  const match = (f: Figure) =>
    (!group || f.group === group) &&
    (places.length === 0 || places.includes(f.place)) &&
    (!want || `${f.id} ${f.place} ${f.unit}`.toLowerCase().includes(want));
  const controls = (
    <Group align="flex-end">
      <TextInput
        label="Search"
        description="Case, place or unit"
        value={text}
        onChange={(e) => setText(e.currentTarget.value)}
        leftSection={<IconSearch size={16} aria-hidden />}
        w={{ base: "100%", xs: 240 }}
      />
      <Select
        label="Group"
        data={groups}
        value={group}
        onChange={setGroup}
        placeholder="All"
        clearable
        clearButtonProps={{ "aria-label": "All groups" }}
      />
      <MultiSelect
        label="Places"
        data={all}
        value={places}
        onChange={setPlaces}
        placeholder={places.length ? undefined : "All"}
        clearable
        clearButtonProps={{ "aria-label": "All places" }}
        maw={480}
      />
    </Group>
  );
  return { match, controls };
}

function Shown({ report, onClose }: { report: Report; onClose: () => void }) {
  const { match, controls } = useFilter(report.figures);
  const shown = report.figures.filter(match);
  const facts: [string, string][] = [
    ...(report.began ? [["Begun", new Date(report.began).toLocaleString()] as [string, string]] : []),
    ...(report.seconds !== undefined ? [["Took", span(report.seconds * 1000)] as [string, string]] : []),
    ...Object.entries(report.machine),
  ];
  return (
    <Stack>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Panel
          title={report.title}
          actions={
            <Button size="xs" variant="default" onClick={onClose}>
              Close report
            </Button>
          }
        >
          <Table>
            <Table.Tbody>
              {facts.map(([k, v]) => (
                <Table.Tr key={k}>
                  <Table.Th fw={400} w={130}>
                    {k}
                  </Table.Th>
                  <Table.Td style={{ overflowWrap: "anywhere" }}>{v}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Panel>
        <Panel title="To be known">
          {report.notes.length === 0 ? (
            <Text size="sm">Nothing disturbed it, and nothing is missing.</Text>
          ) : (
            <Stack gap={4} component="ul" m={0} pl="md">
              {report.notes.map((n, i) => (
                <Text key={i} size="sm" component="li">
                  {n}
                </Text>
              ))}
            </Stack>
          )}
        </Panel>
      </SimpleGrid>
      {controls}
      <Panel title="Plots">
        <Plot figures={shown} />
      </Panel>
      <Panel title={`Figures (${shown.length.toLocaleString()})`}>
        <Figures list={shown} />
      </Panel>
    </Stack>
  );
}

function interval(f: Figure): string {
  if (f.low === undefined || f.high === undefined) return "–";
  return `${figureText(f.low)} to ${figureText(f.high)}${f.sure ? "" : " (quartiles)"}`;
}

function Figures({ list }: { list: Figure[] }) {
  if (list.length === 0) return <Empty>No figure matches.</Empty>;
  return (
    <>
      <div className="table-wrap" tabIndex={0} role="region" aria-label="Figures">
        <Table striped>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Case</Table.Th>
              <Table.Th>Place</Table.Th>
              <Table.Th>Unit</Table.Th>
              <Table.Th>Better</Table.Th>
              <Table.Th ta="right">Value</Table.Th>
              <Table.Th ta="right">Median</Table.Th>
              <Table.Th>Interval</Table.Th>
              <Table.Th ta="right">N</Table.Th>
              <Table.Th>Against the first</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {list.slice(0, most).map((f, n) => (
              <Table.Tr key={n}>
                <Table.Td>{f.id}</Table.Td>
                <Table.Td>{f.place}</Table.Td>
                {f.value === undefined ? (
                  <Table.Td colSpan={7}>not measured{f.skip && `: ${f.skip}`}</Table.Td>
                ) : (
                  <>
                    <Table.Td>{f.unit}</Table.Td>
                    <Table.Td>{f.better}</Table.Td>
                    <Table.Td ta="right">{figureText(f.value)}</Table.Td>
                    <Table.Td ta="right">{figureText(f.median)}</Table.Td>
                    <Table.Td>{interval(f)}</Table.Td>
                    <Table.Td ta="right">{f.n}</Table.Td>
                    <Table.Td>
                      {f.against ? (
                        <>
                          {f.against.text}
                          {f.against.significant === false && ", may be chance"}
                        </>
                      ) : (
                        "–"
                      )}
                    </Table.Td>
                  </>
                )}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      {list.length > most && <Text size="sm">The first {most.toLocaleString()} are shown; search for the others.</Text>}
      <Text size="sm" c="dimmed" mt="sm">
        Value is the median with its 95 % interval; in older files the mean, or, where quartiles are named, the median
        with these. Of runtimes the last column is the gain against the bare machine: less than 0 is a loss.
      </Text>
    </>
  );
}

function Compared({ reports }: { reports: Report[] }) {
  const names = reports.map((r) => r.name);
  const [a, setA] = useState<string | null>(null);
  const [b, setB] = useState<string | null>(null);
  const was = reports.find((r) => r.name === a) ?? reports[0]!;
  const is = reports.find((r) => r.name === b) ?? reports.find((r) => r !== was && r.kind === was.kind) ?? reports[1]!;
  const [all, setAll] = useState<string>("changed");
  const list = useMemo(() => changes(was, is), [was, is]);
  const figures = useMemo(() => list.map((c) => c.is), [list]);
  const { match, controls } = useFilter(figures);
  const shown = list.filter((c) => (all === "all" || c.significant) && match(c.is));
  const other = otherMachine(was, is);
  return (
    <Stack>
      <Group align="flex-end">
        <Select label="Before" data={names} value={was.name} onChange={setA} allowDeselect={false} />
        <Select label="After" data={names} value={is.name} onChange={setB} allowDeselect={false} />
        <Select
          label="Show"
          data={[
            { value: "changed", label: "What changed" },
            { value: "all", label: "Everything in common" },
          ]}
          value={all}
          onChange={(v) => v && setAll(v)}
          allowDeselect={false}
        />
      </Group>
      {other.length > 0 && (
        <Alert
          color="yellow"
          variant="light"
          icon={<IconAlertTriangle aria-hidden />}
          title="The machine is another one"
        >
          {other.map((o) => (
            <div key={o}>{o}</div>
          ))}
        </Alert>
      )}
      {controls}
      <Panel title="Changes">
        <Text size="sm" mb="sm" role="status">
          {list.length === 0
            ? was.kind === is.kind
              ? "The reports have nothing in common."
              : "The reports are of two kinds and cannot be compared."
            : `${list.filter((c) => c.significant).length} of ${count(list.length, "figure")} changed.`}
        </Text>
        {shown.length > 0 && (
          <div className="table-wrap" tabIndex={0} role="region" aria-label="Changes">
            <Table striped>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Case</Table.Th>
                  <Table.Th>Place</Table.Th>
                  <Table.Th>Unit</Table.Th>
                  <Table.Th ta="right">Was</Table.Th>
                  <Table.Th>Interval</Table.Th>
                  <Table.Th ta="right">Is</Table.Th>
                  <Table.Th>Interval</Table.Th>
                  <Table.Th ta="right">Better by</Table.Th>
                  <Table.Th>Verdict</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {shown.slice(0, most).map((c, n) => (
                  <Table.Tr key={n}>
                    <Table.Td>{c.is.id}</Table.Td>
                    <Table.Td>{c.is.place}</Table.Td>
                    <Table.Td>{c.is.unit}</Table.Td>
                    <Table.Td ta="right">{figureText(c.was.value)}</Table.Td>
                    <Table.Td>{interval(c.was)}</Table.Td>
                    <Table.Td ta="right">{figureText(c.is.value)}</Table.Td>
                    <Table.Td>{interval(c.is)}</Table.Td>
                    <Table.Td ta="right">{percent(c.percent)}</Table.Td>
                    <Table.Td>
                      <Badge
                        variant="light"
                        tt="none"
                        color={!c.significant ? "gray" : c.percent > 0 ? "teal" : "orange"}
                      >
                        {!c.significant ? "may be chance" : c.percent > 0 ? "better" : "worse"}
                      </Badge>
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
        )}
      </Panel>
    </Stack>
  );
}
