import { Button, Checkbox, Stack, Table, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { ImageView, List } from "../api/types";
import { ago, bytes, count, parseBytes } from "../format";
import { A, Empty, Loaded, Page, Panel, useActs } from "../parts/basics";
import { useGet } from "../state/query";
import { useSession } from "../state/session";

/** parts divides the name of an image into its repository and its tag; "" is an image without one. */
export function parts(name: string): { repository: string; tag: string } {
  const at = name.indexOf("@");
  if (at >= 0) return { repository: name.slice(0, at), tag: "" };
  const colon = name.lastIndexOf(":");
  return { repository: name.slice(0, colon), tag: name.slice(colon + 1) };
}

/** toDelete gives what the registry is asked to delete: a tag where the repository has other tags of the same image, and else the image. */
export function toDelete(v: ImageView, all: ImageView[]): string {
  const { repository, tag } = parts(v.name);
  const others = all.some((o) => o.name !== v.name && o.digest === v.digest && parts(o.name).repository === repository);
  return `/v2/${repository}/manifests/${others && tag ? tag : v.digest}`;
}

/** Images lists the images of the built-in registry, and what uses them. */
export default function Images() {
  const { client, can } = useSession();
  const { ask } = useActs();
  const q = useGet<List<ImageView>>("/v1/images", 30);
  const [filter, setFilter] = useState("");
  const remove = (v: ImageView, all: ImageView[]) => {
    let force = false;
    ask({
      title: `Delete ${v.name}?`,
      text: (
        <Stack gap="xs">
          <Text size="sm">
            Its content goes with its last tag. An image that a service uses, or could go back to, is not deleted.
          </Text>
          <Checkbox
            label="Delete it all the same"
            description="Its instances run on, and do not start where it is not yet."
            onChange={(e) => (force = e.currentTarget.checked)}
          />
        </Stack>
      ),
      action: "Delete",
      danger: true,
      run: async () => {
        await client.call("DELETE", toDelete(v, all) + (force ? "?force=true" : ""));
        q.reload();
      },
      done: `${v.name} is deleted`,
    });
  };
  const copied = q.data?.items.some((v) => v.copies); // where processes stand by
  const shown = (items: ImageView[]) =>
    items.filter((v) => [v.name, v.digest, ...(v.usedBy ?? []), ...(v.keptFor ?? [])].some((s) => s.includes(filter)));
  return (
    <Page
      title="Images"
      sub={q.data && <span role="status">{count(shown(q.data.items).length, "image")}</span>}
      actions={
        <TextInput
          aria-label="Search images"
          placeholder="Name, digest or service"
          value={filter}
          onChange={(e) => setFilter(e.currentTarget.value.trim())}
        />
      }
    >
      <Panel pad={0}>
        <Loaded of={q}>
          {({ items }) =>
            shown(items).length === 0 ? (
              <Empty>
                {items.length === 0 ? (
                  <>
                    There is no image in the built-in registry. <code>skerry image push</code> adds one.
                  </>
                ) : (
                  "No image is called that, or used by that."
                )}
              </Empty>
            ) : (
              <div className="table-wrap" tabIndex={0} role="region" aria-label="Images">
                <Table miw={980} horizontalSpacing="md" verticalSpacing="sm">
                  <Table.Thead>
                    <Table.Tr>
                      <Table.Th>Repository</Table.Th>
                      <Table.Th>Tag</Table.Th>
                      <Table.Th>Digest</Table.Th>
                      <Table.Th>Platforms</Table.Th>
                      <Table.Th ta="right">Size</Table.Th>
                      <Table.Th ta="right">Pushed</Table.Th>
                      {copied && <Table.Th ta="right">Copies</Table.Th>}
                      <Table.Th>Used by</Table.Th>
                      <Table.Th />
                    </Table.Tr>
                  </Table.Thead>
                  <Table.Tbody>
                    {shown(items).map((v) => (
                      <Table.Tr key={v.name}>
                        <Table.Td>{parts(v.name).repository}</Table.Td>
                        <Table.Td>{parts(v.name).tag || "–"}</Table.Td>
                        <Table.Td>
                          <code title={v.digest}>{v.digest.slice(0, 19)}</code>
                        </Table.Td>
                        <Table.Td>{v.platforms?.join(", ") || "–"}</Table.Td>
                        <Table.Td ta="right">{bytes(parseBytes(v.size))}</Table.Td>
                        <Table.Td ta="right">{v.added ? ago(v.added) + " ago" : "–"}</Table.Td>
                        {copied && (
                          <Table.Td ta="right">{v.copies ? `${v.copies.have} of ${v.copies.of}` : "–"}</Table.Td>
                        )}
                        <Table.Td>
                          <Users of={v} />
                        </Table.Td>
                        <Table.Td ta="right">
                          {can("images:push") && (
                            <Button
                              size="xs"
                              variant="default"
                              aria-label={"Delete " + v.name}
                              onClick={() => remove(v, items)}
                            >
                              Delete
                            </Button>
                          )}
                        </Table.Td>
                      </Table.Tr>
                    ))}
                  </Table.Tbody>
                </Table>
              </div>
            )
          }
        </Loaded>
      </Panel>
    </Page>
  );
}

/** Users names the services that use an image, and those that could go back to it. */
function Users({ of: v }: { of: ImageView }) {
  const kept = (v.keptFor ?? []).filter((s) => !v.usedBy?.includes(s));
  if (!v.usedBy?.length && kept.length === 0) return "–";
  return (
    <>
      {(v.usedBy ?? []).map((user) => (
        <User key={user} user={user} />
      ))}
      {kept.map((user) => (
        <User key={user} user={user} note="an earlier version" />
      ))}
    </>
  );
}

function User({ user, note }: { user: string; note?: string }) {
  const [namespace, app, service] = user.split("/");
  return (
    <Text size="sm" py={3}>
      {service ? (
        <A to={`/apps/${encodeURIComponent(namespace!)}/${encodeURIComponent(app!)}`}>{user}</A>
      ) : (
        user // worker/NAME, whose agent it is
      )}
      {note && ` (${note})`}
    </Text>
  );
}
