import { Button, Checkbox, Fieldset, FileInput, Group, Select, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useState } from "react";
import type { components } from "../api/schema";
import type { List } from "../api/types";
import { ago, bytes } from "../format";
import { Empty, Loaded, Panel, useActs } from "../parts/basics";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { Form, Rows } from "./parts";
import { encode } from "./words";

type Namespace = components["schemas"]["Namespace"];
type SecretView = components["schemas"]["SecretView"];
interface Entry {
  name: string;
  text: string;
  /** data is a file's content in base64, in place of the text. */
  data?: string;
}

const fresh = (): Entry[] => [{ name: "", text: "" }];

/** Secrets lists a namespace's secrets by name and age; nothing gives their content out. */
export function Secrets() {
  const { client, can } = useSession();
  const { ask } = useActs();
  const spaces = useGet<List<Namespace>>("/v1/namespaces");
  const [chosen, setChosen] = useState<string | null>(null);
  const namespace = chosen ?? spaces.data?.items[0]?.name ?? null;
  const path = namespace === null ? null : `/v1/namespaces/${encodeURIComponent(namespace)}/secrets`;
  const q = useGet<List<SecretView>>(path, 30);
  const write = can("secrets:write");
  const [putting, setPutting] = useState(false);
  const [name, setName] = useState("");
  const [rotate, setRotate] = useState(false);
  const [entries, setEntries] = useState<Entry[]>(fresh);
  const close = () => {
    setPutting(false);
    setEntries(fresh()); // what is secret does not stay in the page's memory
  };
  const set = (n: number, e: Partial<Entry>) =>
    setEntries((list) => list.map((old, i) => (i === n ? { ...old, ...e } : old)));
  const take = async (n: number, f: File | null) => {
    if (!f) return set(n, { data: undefined });
    const url = await new Promise<string>((done, fail) => {
      const r = new FileReader();
      r.onload = () => done(r.result as string);
      r.onerror = () => fail(r.error ?? new Error("the file cannot be read"));
      r.readAsDataURL(f);
    });
    set(n, { data: url.slice(url.indexOf(",") + 1), name: entries[n]?.name || f.name });
  };
  const put = (secret: string) => {
    setName(secret);
    setRotate(false);
    setEntries(fresh());
    setPutting(true);
  };
  return (
    <Panel title="Secrets" actions={write && path && <Button onClick={() => put("")}>Put secret</Button>}>
      <Select
        label="Namespace"
        mb="md"
        maw={320}
        data={(spaces.data?.items ?? []).map((n) => n.name)}
        value={namespace}
        onChange={setChosen}
        allowDeselect={false}
      />
      {path === null ? (
        <Empty>There are no namespaces that you may see.</Empty>
      ) : (
        <Loaded of={q}>
          {(list) => (
            <Rows
              label="Secrets"
              head={["Name", "Files", "Size", "Version", "Changed", "By", "Used by", ""]}
              empty="There are none in this namespace."
              rows={list.items.map((s) => ({
                key: s.name,
                cells: [
                  s.name,
                  (s.files ?? []).join(", "),
                  bytes(s.size),
                  s.version,
                  ago(s.updatedAt) + " ago",
                  s.author ?? "–",
                  (s.usedBy ?? []).join(", ") || "–",
                  write && (
                    <Group gap="xs" wrap="nowrap">
                      <Button size="xs" variant="default" aria-label={`Replace ${s.name}`} onClick={() => put(s.name)}>
                        Replace
                      </Button>
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`Delete ${s.name}`}
                        onClick={() =>
                          ask({
                            title: `Delete the secret ${s.name}?`,
                            text: "This cannot be undone.",
                            action: "Delete",
                            danger: true,
                            run: () => client.call("DELETE", `${path}/${encodeURIComponent(s.name)}`).then(q.reload),
                            done: `${s.name} is deleted`,
                          })
                        }
                      >
                        Delete
                      </Button>
                    </Group>
                  ),
                ],
              }))}
            />
          )}
        </Loaded>
      )}
      <Form
        title={`Put a secret in ${namespace}`}
        action="Put"
        opened={putting}
        onClose={close}
        submit={async () => {
          const data = Object.fromEntries(entries.map((e) => [e.name, e.data ?? encode(e.text)]));
          await client.call("PUT", `${path}/${encodeURIComponent(name)}`, {
            body: { data },
            query: { rotate: rotate || undefined },
          });
          q.reload();
        }}
      >
        <Text size="sm">All its files are replaced. Nobody can read them back.</Text>
        <TextInput
          label="Name"
          required
          maxLength={63}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
          data-autofocus
        />
        {entries.map((e, n) => (
          <Fieldset key={n} legend={`File ${n + 1}`} p="xs">
            <Stack gap="xs">
              <TextInput
                label="File name"
                required
                value={e.name}
                onChange={(x) => set(n, { name: x.currentTarget.value })}
              />
              <Textarea
                label="Text"
                rows={2}
                disabled={e.data !== undefined}
                value={e.text}
                onChange={(x) => set(n, { text: x.currentTarget.value })}
                autoComplete="off"
                spellCheck={false}
              />
              <FileInput
                label="or a file"
                onChange={(f) => void take(n, f)}
                clearable
                clearButtonProps={{ "aria-label": "No file" }}
              />
              {entries.length > 1 && (
                <Button
                  size="xs"
                  variant="default"
                  onClick={() => setEntries((list) => list.filter((_, i) => i !== n))}
                >
                  Take file {n + 1} away
                </Button>
              )}
            </Stack>
          </Fieldset>
        ))}
        <div>
          <Button size="xs" variant="default" onClick={() => setEntries((list) => [...list, { name: "", text: "" }])}>
            One more file
          </Button>
        </div>
        <Checkbox
          label="Rotate"
          description="Update the instances that use it"
          checked={rotate}
          onChange={(e) => setRotate(e.currentTarget.checked)}
        />
      </Form>
    </Panel>
  );
}
