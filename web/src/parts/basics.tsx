import {
  Alert,
  Anchor,
  type AnchorProps,
  Box,
  Button,
  Card,
  Center,
  Group,
  Loader,
  Modal,
  Stack,
  Text,
  Title,
} from "@mantine/core";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useState } from "react";
import { Link, type LinkProps } from "react-router-dom";
import { aboutError } from "../api/client";
import type { Applied } from "../api/types";
import { IconAlertTriangle, IconCircleCheck, IconInfoCircle } from "../icons";
import type { Query } from "../state/query";

/** A is a link to a page of the dashboard. */
export function A(props: AnchorProps & LinkProps) {
  return <Anchor component={Link} underline="always" {...props} />;
}

/** Page is a page's title, what can be done there, and its content. */
export function Page({
  title,
  sub,
  actions,
  children,
}: {
  title: string;
  sub?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}) {
  useEffect(() => {
    document.title = title + " · Skerry";
  }, [title]);
  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-start" wrap="wrap" gap="sm">
        <Box>
          <Title order={1} size="h2" tabIndex={-1} id="title">
            {title}
          </Title>
          {sub && (
            <Text c="dimmed" size="sm" component="div">
              {sub}
            </Text>
          )}
        </Box>
        {actions && <Group gap="xs">{actions}</Group>}
      </Group>
      {children}
    </Stack>
  );
}

/** Panel is a part of a page with a title of its own. */
export function Panel({
  title,
  actions,
  children,
  pad = "md",
}: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  pad?: string | number;
}) {
  return (
    <Card withBorder padding={pad} radius="md" component="section">
      {(title || actions) && (
        <Group justify="space-between" mb="sm" p={pad === 0 ? "md" : 0} pb={0}>
          <Title order={2} size="h4">
            {title}
          </Title>
          {actions && <Group gap="xs">{actions}</Group>}
        </Group>
      )}
      {children}
    </Card>
  );
}

/** Problem shows what went wrong in the server's words, with its advice and the places that it names. */
export function Problem({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const { text, hint, problems } = aboutError(error);
  return (
    <Alert color="red" variant="light" icon={<IconAlertTriangle aria-hidden />} title={text} role="alert">
      <Stack gap={4}>
        {problems.map((p, i) => (
          <Text key={i} size="sm">
            <code>{p.path}</code>: {p.message}
            {p.hint && <> — {p.hint}</>}
          </Text>
        ))}
        {hint && <Text size="sm">{hint}</Text>}
        {onRetry && (
          <Box>
            <Button size="xs" variant="default" onClick={onRetry}>
              Try again
            </Button>
          </Box>
        )}
      </Stack>
    </Alert>
  );
}

/** Empty says that there is nothing, and what to do about it. */
export function Empty({ children }: { children: ReactNode }) {
  return (
    <Center p="xl">
      <Text c="dimmed" ta="center" maw={480} component="div">
        {children}
      </Text>
    </Center>
  );
}

/** Stale says of what was read before that it cannot be read now, or else nothing. */
export function Stale({ of }: { of: Query<unknown> }) {
  if (of.data === undefined || of.error === undefined) return null;
  return (
    <Alert color="yellow" variant="light" mb="md" role="status" title="What you see is of before">
      It cannot be read now: {aboutError(of.error).text}.
    </Alert>
  );
}

/**
 * Loaded shows what a query gave, or that it is on its way, or why there is nothing: under a title where the whole page is what was asked
 * for. What was read before and cannot be read now is shown as that.
 */
export function Loaded<T>({ of, title, children }: { of: Query<T>; title?: string; children: (data: T) => ReactNode }) {
  if (of.data !== undefined)
    return (
      <>
        <Stale of={of} />
        {children(of.data)}
      </>
    );
  if (of.error) {
    const problem = <Problem error={of.error} onRetry={of.reload} />;
    return title === undefined ? problem : <Page title={title}>{problem}</Page>;
  }
  return (
    <Center p="xl">
      <Loader aria-label="Loading" />
    </Center>
  );
}

interface Ask {
  title: string;
  text: ReactNode;
  action: string;
  danger?: boolean;
  run: () => Promise<unknown>;
  /** done is said when it worked. */
  done?: string;
}

interface Acts {
  /** ask runs something once the user has said yes. */
  ask(a: Ask): void;
  /** act runs something and says how it went, with the warnings of the server; true if it worked. */
  act(run: () => Promise<unknown>, done?: string): Promise<boolean>;
  say(text: string, error?: unknown): void;
}

const ActsContext = createContext<Acts | null>(null);

export function useActs(): Acts {
  const a = useContext(ActsContext);
  if (!a) throw new Error("there is no ActsProvider around this");
  return a;
}

interface Note {
  id: number;
  text: string;
  error?: unknown;
  /** warning stays, as an error does, until somebody closes it. */
  warning?: boolean;
}

/** ActsProvider asks before what cannot be undone, and tells how things went in a place that screen readers read out. */
export function ActsProvider({ children }: { children: ReactNode }) {
  const [asked, setAsked] = useState<Ask | null>(null);
  const [busy, setBusy] = useState(false);
  const [notes, setNotes] = useState<Note[]>([]);
  const say = useCallback((text: string, error?: unknown, warning?: boolean) => {
    const id = Math.random();
    setNotes((n) => [...n.filter((x, i) => x.error || x.warning || i >= n.length - 3), { id, text, error, warning }]);
    if (!error && !warning) setTimeout(() => setNotes((n) => n.filter((x) => x.id !== id)), 6000);
  }, []);
  const act = useCallback(
    async (run: () => Promise<unknown>, done?: string) => {
      try {
        const { unchanged, warnings } = ((await run()) ?? {}) as Partial<Applied>;
        if (done) say(unchanged ? "Nothing was changed: it is so already." : done);
        for (const w of warnings ?? []) say(w, undefined, true);
        return true;
      } catch (e) {
        say("", e);
        return false;
      }
    },
    [say],
  );
  const [acts, setActs] = useState<Acts>({ ask: setAsked, act, say });
  useEffect(() => setActs({ ask: setAsked, act, say }), [act, say]);
  return (
    <ActsContext.Provider value={acts}>
      {children}
      <Modal
        opened={asked !== null}
        onClose={() => setAsked(null)}
        title={asked?.title}
        centered
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <Stack>
          <Text component="div">{asked?.text}</Text>
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setAsked(null)}>
              Cancel
            </Button>
            <Button
              color={asked?.danger ? "red" : undefined}
              loading={busy}
              data-autofocus
              onClick={async () => {
                setBusy(true);
                await act(asked!.run, asked!.done);
                setBusy(false);
                setAsked(null);
              }}
            >
              {asked?.action}
            </Button>
          </Group>
        </Stack>
      </Modal>
      <Box
        pos="fixed"
        bottom={16}
        right={16}
        maw="min(420px, calc(100vw - 32px))"
        style={{ zIndex: 400 }}
        role="status"
        aria-live="polite"
      >
        <Stack gap="xs">
          {notes.map((n) => {
            const e = n.error ? aboutError(n.error) : null;
            return (
              <Alert
                key={n.id}
                color={e ? "red" : n.warning ? "orange" : "teal"}
                variant="filled"
                icon={
                  e || n.warning ? (
                    <IconAlertTriangle aria-hidden />
                  ) : n.text ? (
                    <IconCircleCheck aria-hidden />
                  ) : (
                    <IconInfoCircle aria-hidden />
                  )
                }
                withCloseButton
                closeButtonLabel="Close"
                onClose={() => setNotes((list) => list.filter((x) => x.id !== n.id))}
              >
                {e ? e.text : n.text}
                {e?.problems.map((p, i) => (
                  <div key={i}>
                    {p.path}: {p.message}
                  </div>
                ))}
                {e?.hint && <div>{e.hint}</div>}
              </Alert>
            );
          })}
        </Stack>
      </Box>
    </ActsContext.Provider>
  );
}
