import { Button, Center, Stack, Text } from "@mantine/core";
import { Component, type ComponentType, lazy, type ReactNode } from "react";

/** patience is how long to wait before code is asked for again, in milliseconds. */
const patience = [300, 1000, 3000];

/** again tries something until it works, a few times. */
export async function again<T>(load: () => Promise<T>, waits: readonly number[] = patience): Promise<T> {
  for (const wait of waits) {
    try {
      return await load();
    } catch {
      await new Promise((done) => setTimeout(done, wait));
    }
  }
  return load();
}

/** later is a part whose code comes when it is first shown, over a link that may fail. */
// biome-ignore lint/suspicious/noExplicitAny: a part may have any properties
export function later<P extends ComponentType<any>>(load: () => Promise<{ default: P }>) {
  return lazy(() => again(load));
}

/** Caught keeps a fault of one page from taking the others along. */
export class Caught extends Component<{ children: ReactNode }, { error?: Error }> {
  state: { error?: Error } = {};

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  render() {
    if (!this.state.error) return this.props.children;
    return (
      <Center p="xl" role="alert">
        <Stack align="center">
          <Text fw={600}>This page could not be shown</Text>
          <Text size="sm" c="dimmed">
            {this.state.error.message}
          </Text>
          <Button onClick={() => location.reload()}>Reload</Button>
        </Stack>
      </Center>
    );
  }
}
