import { yaml } from "@codemirror/lang-yaml";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import { tags } from "@lezer/highlight";
import { basicSetup, EditorView } from "codemirror";
import { useEffect, useRef } from "react";

// Colours that can be read on light and on dark.
const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "light-dark(#0b5964, #6ec4cc)" },
  { tag: [tags.string, tags.content, tags.special(tags.string)], color: "light-dark(#1f2933, #dbe7ea)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom, tags.keyword], color: "light-dark(#8a3a00, #ffc078)" },
  { tag: [tags.comment, tags.meta], color: "light-dark(#495057, #b8bec5)", fontStyle: "italic" },
  { tag: [tags.separator, tags.punctuation, tags.bracket], color: "light-dark(#495057, #b8bec5)" },
]);

/** Yaml shows YAML, or lets it be written. Marks are the places at which something is wrong. */
export default function Yaml({
  label,
  value,
  onChange,
  readOnly,
  marks,
}: {
  label: string;
  value: string;
  onChange?: (text: string) => void;
  readOnly?: boolean;
  marks?: Diagnostic[];
}) {
  const at = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const changed = useRef(onChange);
  changed.current = onChange;
  useEffect(() => {
    const v = new EditorView({
      parent: at.current!,
      state: EditorState.create({
        doc: value,
        extensions: [
          basicSetup,
          yaml(),
          syntaxHighlighting(colours),
          lintGutter(),
          EditorView.lineWrapping,
          EditorState.readOnly.of(!!readOnly),
          EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
          EditorView.updateListener.of(
            (u) =>
              u.docChanged &&
              u.transactions.some(
                (t) =>
                  t.isUserEvent("input") ||
                  t.isUserEvent("delete") ||
                  t.isUserEvent("undo") ||
                  t.isUserEvent("redo") ||
                  t.isUserEvent("move"),
              ) &&
              changed.current?.(u.state.doc.toString()),
          ),
          EditorView.theme({
            "&": {
              fontSize: "13px",
              border: "1px solid var(--mantine-color-default-border)",
              borderRadius: "8px",
              backgroundColor: "var(--mantine-color-body)",
              maxHeight: "75vh",
            },
            ".cm-scroller": { overflow: "auto", fontFamily: "var(--mantine-font-family-monospace)" },
            ".cm-gutters": {
              backgroundColor: "var(--mantine-color-default-hover)",
              color: "var(--mantine-color-dimmed)",
              borderRight: "1px solid var(--mantine-color-default-border)",
            },
            ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
            ".cm-cursor": { borderLeftColor: "var(--mantine-color-text)" },
          }),
        ],
      }),
    });
    view.current = v;
    return () => v.destroy();
    // The text is brought in below; a new editor would lose cursor and history.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [label, readOnly]);
  useEffect(() => {
    const v = view.current;
    if (v && v.state.doc.toString() !== value)
      v.dispatch({ changes: { from: 0, to: v.state.doc.length, insert: value } });
  }, [value]);
  useEffect(() => {
    const v = view.current;
    if (v)
      v.dispatch(
        setDiagnostics(
          v.state,
          (marks ?? []).filter((m) => m.to <= v.state.doc.length),
        ),
      );
  }, [marks, value]);
  return <div ref={at} />;
}
