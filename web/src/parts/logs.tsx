import { Box, Button, Checkbox, Group, Text, TextInput } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { lines } from "../api/lines";
import { useSession } from "../state/session";
import { Problem } from "./basics";

interface Line {
  time: string;
  stream: string;
  line: string;
}

const most = 20_000;

/** Logs shows what an instance writes, as it does, and finds text in it. */
export function Logs({ id, running }: { id: string; running: boolean }) {
  const { client } = useSession();
  const [all, setAll] = useState<Line[]>([]);
  const [text, setText] = useState("");
  const [only, setOnly] = useState(true);
  const [previous, setPrevious] = useState(false);
  const [end, setEnd] = useState(true);
  const [error, setError] = useState<unknown>();
  const [round, setRound] = useState(0);

  useEffect(() => {
    const stop = new AbortController();
    let buffer: Line[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = () => {
      timer = undefined;
      const add = buffer;
      buffer = [];
      setAll((old) => [...old, ...add].slice(-most));
    };
    setAll([]);
    setError(undefined);
    // A browser has few connections to one server, for all of its tabs: one that is not seen gives its own back.
    let part = new AbortController();
    const rest = () => document.hidden && part.abort();
    document.addEventListener("visibilitychange", rest);
    stop.signal.addEventListener("abort", () => {
      document.removeEventListener("visibilitychange", rest);
      part.abort();
    });
    const seen = () =>
      new Promise<void>((done) => {
        const look = () => {
          if (document.hidden && !stop.signal.aborted) return;
          document.removeEventListener("visibilitychange", look);
          done();
        };
        document.addEventListener("visibilitychange", look);
        stop.signal.addEventListener("abort", look);
        look();
      });
    const read = async () => {
      // What has been read already is not asked for again after a broken connection.
      let since: string | undefined;
      for (let wait = 1000; !stop.signal.aborted; wait = Math.min(wait * 2, 15_000)) {
        await seen();
        if (stop.signal.aborted) return;
        part = new AbortController();
        try {
          const res = await client.open("GET", `/v1/instances/${encodeURIComponent(id)}/logs`, {
            query: {
              follow: running && !previous ? true : undefined,
              previous: previous || undefined,
              tail: since ? undefined : 2000,
              since,
            },
            accept: "application/x-ndjson",
            signal: part.signal,
          });
          setError(undefined);
          for await (const l of lines<Line>(res)) {
            wait = 1000;
            since = l.time;
            buffer.push(l);
            timer ??= setTimeout(flush, 100);
          }
          if (previous || !running) break;
        } catch (e) {
          if (stop.signal.aborted) return;
          if (part.signal.aborted) continue;
          setError(e);
          if (previous || !running) break;
        }
        await new Promise((done) => setTimeout(done, wait));
      }
    };
    void read();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [client, id, running, previous, round]);

  const found = useMemo(() => {
    const t = text.toLowerCase();
    return t && only ? all.filter((l) => l.line.toLowerCase().includes(t)) : all;
  }, [all, text, only]);
  const hits = useMemo(
    () => (text ? all.reduce((n, l) => n + (l.line.toLowerCase().includes(text.toLowerCase()) ? 1 : 0), 0) : 0),
    [all, text],
  );

  const scroll = useRef<HTMLDivElement>(null);
  const v = useVirtualizer({
    count: found.length,
    getScrollElement: () => scroll.current,
    estimateSize: () => 20,
    overscan: 30,
    initialRect: { width: 1000, height: 500 },
  });
  useEffect(() => {
    if (end && found.length > 0) v.scrollToIndex(found.length - 1, { align: "end" });
  }, [found.length, end, v]);

  return (
    <Box>
      <Group mb="sm" align="flex-end">
        <TextInput
          label="Search"
          value={text}
          onChange={(e) => setText(e.currentTarget.value)}
          w={{ base: "100%", xs: 260 }}
        />
        <Checkbox
          label="Only lines that match"
          checked={only}
          onChange={(e) => setOnly(e.currentTarget.checked)}
          pb={8}
        />
        <Checkbox label="Stay at the end" checked={end} onChange={(e) => setEnd(e.currentTarget.checked)} pb={8} />
        <Checkbox
          label="Of the run before"
          checked={previous}
          onChange={(e) => setPrevious(e.currentTarget.checked)}
          pb={8}
        />
        <Button variant="default" onClick={() => save(id, found)}>
          Save
        </Button>
        <Text size="sm" c="dimmed" role="status" pb={8}>
          {text ? `${hits} of ${all.length} lines match` : `${all.length} lines`}
        </Text>
      </Group>
      {error !== undefined && <Problem error={error} onRetry={() => setRound((n) => n + 1)} />}
      <div
        ref={scroll}
        role="log"
        aria-label={"Log of " + id}
        aria-live="off"
        tabIndex={0}
        onWheel={(e) => e.deltaY < 0 && setEnd(false)}
        style={{
          height: "60vh",
          overflow: "auto",
          background: "#0d1b22",
          color: "#dbe7ea",
          borderRadius: 8,
          padding: 8,
          fontFamily: "var(--mantine-font-family-monospace)",
          fontSize: 13,
        }}
      >
        <div style={{ height: v.getTotalSize(), position: "relative" }}>
          {v.getVirtualItems().map((it) => {
            const l = found[it.index]!;
            return (
              <div
                key={it.key}
                data-index={it.index}
                ref={v.measureElement}
                style={{
                  position: "absolute",
                  top: 0,
                  left: 0,
                  right: 0,
                  transform: `translateY(${it.start}px)`,
                  whiteSpace: "pre-wrap",
                  overflowWrap: "anywhere",
                  color: l.stream === "stderr" ? "#ffc9a3" : undefined,
                }}
              >
                <span style={{ color: "#9db4bb" }}>{l.time.slice(11, 23)} </span>
                {mark(l.line, text)}
              </div>
            );
          })}
        </div>
      </div>
    </Box>
  );
}

function mark(line: string, text: string) {
  if (!text) return line;
  const out = [];
  const low = line.toLowerCase();
  const t = text.toLowerCase();
  let at = 0;
  for (let i = low.indexOf(t); i >= 0; i = low.indexOf(t, at)) {
    out.push(line.slice(at, i), <mark key={i}>{line.slice(i, i + t.length)}</mark>);
    at = i + t.length;
  }
  out.push(line.slice(at));
  return out;
}

function save(id: string, list: Line[]) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(
    new Blob([list.map((l) => `${l.time} ${l.stream} ${l.line}\n`).join("")], { type: "text/plain" }),
  );
  a.download = id + ".log";
  a.click();
  URL.revokeObjectURL(a.href);
}
