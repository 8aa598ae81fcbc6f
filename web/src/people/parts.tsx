import { ActionIcon, Button, Code, CopyButton, Group, Modal, Stack, Table, Text } from "@mantine/core";
import { type FormEvent, type ReactNode, useEffect, useState } from "react";
import { IconCheck, IconCopy } from "../icons";
import { Empty, Problem } from "../parts/basics";

/** Rows is a table that scrolls by itself where it is wider than the screen. */
export function Rows({
  label,
  head,
  rows,
  empty,
}: {
  label: string;
  head: string[];
  rows: { key: string; cells: ReactNode[] }[];
  empty: ReactNode;
}) {
  if (rows.length === 0) return <Empty>{empty}</Empty>;
  return (
    <div className="table-wrap" tabIndex={0} role="region" aria-label={label}>
      <Table verticalSpacing="xs">
        <Table.Thead>
          <Table.Tr>{head.map((h, n) => (h ? <Table.Th key={n}>{h}</Table.Th> : <Table.Td key={n} />))}</Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((r) => (
            <Table.Tr key={r.key}>
              {r.cells.map((c, n) => (
                <Table.Td key={n}>{c}</Table.Td>
              ))}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

/** Form is a dialog with fields. It stays open with what was entered, and says why, until submit has worked. */
export function Form({
  title,
  action,
  opened,
  onClose,
  submit,
  children,
}: {
  title: string;
  action: string;
  opened: boolean;
  onClose: () => void;
  submit: () => Promise<unknown>;
  children: ReactNode;
}) {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  useEffect(() => setError(undefined), [opened]);
  const send = async (e: FormEvent) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await submit();
      onClose();
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Modal opened={opened} onClose={onClose} title={title} closeButtonProps={{ "aria-label": "Close" }}>
      <form onSubmit={send}>
        <Stack>
          {error !== undefined && <Problem error={error} />}
          {children}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={busy}>
              {action}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

/** Copyable is a text with a button that copies it. */
export function Copyable({ text, label }: { text: string; label: string }) {
  return (
    <Group gap="xs" wrap="nowrap" align="flex-start">
      <Code block flex={1} style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }} tabIndex={0} aria-label={label}>
        {text}
      </Code>
      <CopyButton value={text}>
        {({ copied, copy }) => (
          <ActionIcon
            variant="default"
            size={36}
            onClick={copy}
            aria-label={copied ? `${label}: copied` : `Copy: ${label}`}
          >
            {copied ? <IconCheck size={18} aria-hidden /> : <IconCopy size={18} aria-hidden />}
          </ActionIcon>
        )}
      </CopyButton>
    </Group>
  );
}

/** Once shows what is told once and never again. */
export function Once({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  return (
    <Modal
      opened
      onClose={onClose}
      title={title}
      size="lg"
      closeOnClickOutside={false}
      closeButtonProps={{ "aria-label": "Close" }}
    >
      <Stack>
        <Text size="sm">Store it now: it is not shown again.</Text>
        {children}
        <Group justify="flex-end">
          <Button onClick={onClose}>I have stored it</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
