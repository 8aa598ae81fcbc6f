import { Alert, Button, Checkbox, Code, Select, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { components } from "../api/schema";
import type { List } from "../api/types";
import { clock } from "../format";
import { Loaded, Panel, useActs } from "../parts/basics";
import { useGet } from "../state/query";
import { useSession } from "../state/session";
import { Copyable, Form, Once, Rows } from "./parts";
import { joinCommand, joinRoles, until } from "./words";

type JoinToken = components["schemas"]["JoinToken"];
type NewJoinToken = components["schemas"]["NewJoinToken"];
type Member = components["schemas"]["Member"];

const lives = [
  { value: "1h", label: "1 hour" },
  { value: "24h", label: "1 day" },
  { value: "168h", label: "7 days" },
  { value: "720h", label: "30 days" },
];

/** JoinTokens let clusters join the root, and workers and successors a cluster. */
export function JoinTokens() {
  const { client, who } = useSession();
  const { ask } = useActs();
  const q = useGet<List<JoinToken>>("/v1/tokens", 10);
  const roles = joinRoles(who?.role);
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<NewJoinToken>();
  const [role, setRole] = useState<string>(roles[0]!);
  const [name, setName] = useState("");
  const [ttl, setTTL] = useState("1h");
  const [replace, setReplace] = useState(false);
  return (
    <Panel title="Join tokens" actions={<Button onClick={() => setMaking(true)}>New token</Button>}>
      <Text size="sm" c="dimmed" mb="sm">
        A token lets one machine join, once.
      </Text>
      <Loaded of={q}>
        {(list) => (
          <Rows
            label="Join tokens"
            head={["For a", "Name", "Made", "By", "Good", "Used", ""]}
            empty="There are none. Create one for a machine that is to join."
            rows={list.items.map((t) => ({
              key: t.id,
              cells: [
                t.role,
                t.name || "any",
                clock(t.created),
                t.by || "–",
                t.used ? "used up" : until(t.expires),
                t.used ? `by ${t.used.name}, ${clock(t.used.at)}` : "not yet",
                <Button
                  size="xs"
                  variant="default"
                  aria-label={`Delete token ${t.id}`}
                  onClick={() =>
                    ask({
                      title: `Delete the token ${t.id}?`,
                      text: "Nothing can join with it any more. Members that joined with it stay.",
                      action: "Delete",
                      danger: true,
                      run: async () => {
                        await client.call("DELETE", `/v1/tokens/${encodeURIComponent(t.id)}`);
                        q.reload();
                      },
                      done: "The token is deleted",
                    })
                  }
                >
                  Delete
                </Button>,
              ],
            }))}
          />
        )}
      </Loaded>
      <Form
        title="New join token"
        action="Make"
        opened={making}
        onClose={() => setMaking(false)}
        submit={async () => {
          setMade(
            await client.call<NewJoinToken>("POST", "/v1/tokens", {
              body: { role, ttl, name: name || undefined, replace: replace || undefined },
            }),
          );
          setName("");
          setReplace(false);
          q.reload();
        }}
      >
        <Select label="For a" data={roles} value={role} onChange={(v) => v && setRole(v)} allowDeselect={false} />
        <TextInput
          label="Name"
          description={
            role === "successor" ? "Of the machine that is to succeed" : "Only this name may join with it; nothing: any"
          }
          required={role === "successor"}
          maxLength={63}
          value={name}
          onChange={(e) => setName(e.currentTarget.value)}
        />
        <Select label="Life" data={lives} value={ttl} onChange={(v) => v && setTTL(v)} allowDeselect={false} />
        <Checkbox
          label="It takes over the name of an enrolled device"
          description="For a reinstalled machine"
          checked={replace}
          onChange={(e) => setReplace(e.currentTarget.checked)}
        />
      </Form>
      {made && (
        <Once title={`Token for a ${made.role}`} onClose={() => setMade(undefined)}>
          <Text size="sm">On the machine that is to join, run:</Text>
          <Copyable label="The command" text={joinCommand(made.role, window.location.hostname, made.text, made.name)} />
          <Text size="sm">
            <Code>{window.location.hostname}</Code> is how you reach this server; where the machine reaches it by
            another name or port, put that there
            {made.role === "successor" && ", and the root’s address for ROOT"}.
          </Text>
          <Copyable label="The token alone" text={made.text} />
        </Once>
      )}
    </Panel>
  );
}

/** Members are the machines that have joined, with their keys. */
export function Members() {
  const { client } = useSession();
  const { ask, act } = useActs();
  const q = useGet<List<Member>>("/v1/members", 10);
  const [revoking, setRevoking] = useState<Member>();
  const [reason, setReason] = useState("");
  const path = (m: Member) => `/v1/members/${encodeURIComponent(m.name)}`;
  return (
    <Stack>
      <Panel title="Members">
        <Loaded of={q}>
          {(list) => (
            <>
              {list.items
                .filter((m) => m.quarantine)
                .map((m) => (
                  <Alert key={m.name} color="red" mb="sm" title={`${m.name} is held apart`}>
                    <Text size="sm">
                      {clock(m.quarantine!.at)}: {m.quarantine!.how}. Machine {m.quarantine!.first} keeps working;{" "}
                      {m.quarantine!.later}
                      {m.quarantine!.addr && ` at ${m.quarantine!.addr}`} is refused. Revoke the member if its key has
                      been taken; release it if you know both.
                    </Text>
                  </Alert>
                ))}
              <Rows
                label="Members"
                head={["Name", "Role", "Joined", "Certificate", "Key", "State", ""]}
                empty="Nothing has joined yet."
                rows={list.items.map((m) => ({
                  key: m.role + m.name,
                  cells: [
                    m.name,
                    m.role,
                    clock(m.joined),
                    until(m.expires),
                    <span className="mono" title={m.key}>
                      {m.key.slice(0, 12)}…
                    </span>,
                    m.quarantine ? "held apart" : "trusted",
                    <>
                      {m.quarantine && (
                        <Button
                          size="xs"
                          variant="default"
                          mr="xs"
                          aria-label={`Release ${m.name}`}
                          onClick={() =>
                            ask({
                              title: `Release ${m.name}?`,
                              text: "It is trusted again. Do this only if you know why its identity was seen on two machines.",
                              action: "Release",
                              run: () => client.call("POST", path(m) + "/release").then(q.reload),
                              done: `${m.name} is released`,
                            })
                          }
                        >
                          Release
                        </Button>
                      )}
                      <Button
                        size="xs"
                        variant="default"
                        aria-label={`Revoke ${m.name}`}
                        onClick={() => (setReason(""), setRevoking(m))}
                      >
                        Revoke
                      </Button>
                    </>,
                  ],
                }))}
              />
            </>
          )}
        </Loaded>
      </Panel>
      <Form
        title={`Revoke ${revoking?.name ?? ""}?`}
        action="Revoke"
        opened={revoking !== undefined}
        onClose={() => setRevoking(undefined)}
        submit={async () => {
          await client.call("DELETE", path(revoking!), { query: { reason } });
          await act(async () => q.reload(), `${revoking!.name} is revoked`);
        }}
      >
        <Text size="sm">
          Its link is cut, and its key may never come back. To join again the machine needs a new token.
        </Text>
        <TextInput
          label="Reason"
          description="Kept with the revoked key"
          maxLength={200}
          value={reason}
          onChange={(e) => setReason(e.currentTarget.value)}
          data-autofocus
        />
      </Form>
    </Stack>
  );
}
