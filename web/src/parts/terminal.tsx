import "@xterm/xterm/css/xterm.css";
import { Box, Button, Group, Text, TextInput } from "@mantine/core";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import { useEffect, useRef, useState } from "react";
import { Exec } from "../api/exec";
import { useSession } from "../state/session";
import { Panel, Problem } from "./basics";

/** Terminal runs a command inside an instance. */
export default function Terminal({ id }: { id: string }) {
  const { client } = useSession();
  const [command, setCommand] = useState("/bin/sh");
  const [run, setRun] = useState<{ command: string[] } | null>(null);
  const [ended, setEnded] = useState("");
  const [error, setError] = useState<unknown>();
  const at = useRef<HTMLDivElement>(null);

  useEffect(() => {
    if (!run) return;
    const term = new Xterm({
      cursorBlink: false,
      fontSize: 13,
      screenReaderMode: true,
      convertEol: false,
      theme: { background: "#0d1b22", foreground: "#dbe7ea" },
    });
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.open(at.current!);
    fit.fit();
    term.focus();
    // Tab belongs to the shell; who has no pointer leaves by Ctrl+Shift+E.
    term.attachCustomKeyEventHandler((e) => {
      if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === "e") {
        document.getElementById("terminal-end")?.focus();
        return false;
      }
      return true;
    });
    let exec: Exec | undefined;
    let gone = false;
    setEnded("");
    setError(undefined);
    client.token().then(
      (token) => {
        if (gone) return;
        exec = new Exec(id, run.command, token, {
          onOutput: (d) => term.write(d),
          onEnd: (r) => {
            setEnded(
              r
                ? r.error
                  ? r.error + (r.hint ? ` – ${r.hint}` : "")
                  : `The command ended with status ${r.code}.`
                : "The connection was lost, or the command could not be started.",
            );
            setRun(null);
          },
        });
        exec.resize(term.rows, term.cols);
        term.onData((d) => exec?.input(d));
        term.onResize(({ rows, cols }) => exec?.resize(rows, cols));
      },
      (e) => {
        setError(e);
        setRun(null);
      },
    );
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(at.current!);
    return () => {
      gone = true;
      watch.disconnect();
      exec?.close();
      term.dispose();
    };
  }, [client, id, run]);

  return (
    <Panel>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          setRun({ command: words(command) });
        }}
      >
        <Group align="flex-end" mb="sm">
          <TextInput
            label="Command"
            value={command}
            onChange={(e) => setCommand(e.currentTarget.value)}
            disabled={run !== null}
            required
            w={{ base: "100%", xs: 320 }}
            className="mono"
          />
          {run ? (
            <Button id="terminal-end" variant="default" onClick={() => setRun(null)}>
              End
            </Button>
          ) : (
            <Button type="submit">Run</Button>
          )}
          <Text size="sm" c="dimmed" role="status" pb={8}>
            {run ? "Ctrl+Shift+E leaves the terminal." : ended}
          </Text>
        </Group>
      </form>
      {error !== undefined && <Problem error={error} />}
      <Box
        ref={at}
        h={run ? "60vh" : 0}
        style={{ overflow: "hidden", borderRadius: 8, background: "#0d1b22" }}
        data-testid="terminal"
      />
    </Panel>
  );
}

/** words splits a command as a shell does, with quotes and no more. */
export function words(command: string): string[] {
  const out: string[] = [];
  for (const m of command.matchAll(/((?:"[^"]*"|'[^']*'|[^\s"'])+)/g))
    out.push(m[1]!.replace(/"([^"]*)"|'([^']*)'/g, (_, a?: string, b?: string) => a ?? b ?? ""));
  return out;
}
