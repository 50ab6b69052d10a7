// Runs Java for kernel_java.py with the JDK's own shell. Its protocol consists of lines on two pipes:
//
//   code                 a request, in base64
//   out TEXT, err TEXT   output of the code, in base64
//   value TEXT           the value of its last expression
//   error NAME TEXT TRACE
//   done                 the end of the response
//
// Run by `java JavaShell.java REQUESTS ANSWERS`, which compiles it first. It ends when the pipe of requests is closed. SIGINT stops the running
// code, as in a terminal.

import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Locale;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.VarSnippet;

public class JavaShell {
    // The default imports of `jshell`.
    private static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*", "java.util.function.*",
        "java.util.prefs.*", "java.util.regex.*", "java.util.stream.*"
    };

    private final PrintStream answers;
    private final JShell shell;
    private volatile boolean stopped;

    private JavaShell(PrintStream answers) {
        this.answers = answers;
        // In this process: one JVM is enough, and code that exits ends its kernel.
        shell = JShell.builder().executionEngine("local").build();
        for (String name : IMPORTS) {
            shell.eval("import " + name + ";");
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(arguments[1]), true, StandardCharsets.US_ASCII);
        JavaShell self = new JavaShell(answers);
        System.setIn(InputStream.nullInputStream());
        System.setOut(new PrintStream(self.new Output("out"), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(self.new Output("err"), true, StandardCharsets.UTF_8));
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> self.stop());
        self.answer("done");
        LinkedBlockingQueue<String> requests = new LinkedBlockingQueue<>();
        Thread reader = new Thread(() -> read(arguments[0], requests));
        reader.setDaemon(true);
        reader.start();
        while (true) {
            self.run(new String(Base64.getDecoder().decode(requests.take()), StandardCharsets.UTF_8));
        }
    }

    // In a separate thread, so that the end of the pipe is noticed while code runs.
    private static void read(String path, LinkedBlockingQueue<String> requests) {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(new FileInputStream(path)))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                requests.add(line);
            }
        } catch (IOException gone) {
            // Handled like the end of the pipe.
        }
        Runtime.getRuntime().halt(0);
    }

    private void stop() {
        stopped = true;
        shell.stop();
    }

    private void run(String code) {
        stopped = false;
        try {
            String left = code;
            SnippetEvent last = null;
            while (!left.isBlank() && !stopped) {
                CompletionInfo part = shell.sourceCodeAnalysis().analyzeCompletion(left);
                // Incomplete code has no next part: it is evaluated as it is, and rejected with the compiler's message.
                String source = part.completeness().isComplete() ? part.source() : left;
                left = part.completeness().isComplete() ? part.remaining() : "";
                for (SnippetEvent event : shell.eval(source)) {
                    // Other events concern earlier code that this code changed.
                    if (event.causeSnippet() == null) {
                        last = event;
                    }
                    if (failed(event, source)) {
                        return;
                    }
                }
            }
            if (stopped) {
                answer("error", "KeyboardInterrupt", "interrupted", "");
            } else if (last != null && isExpression(last.snippet()) && last.value() != null) {
                answer("value", shown(last));
            }
        } catch (RuntimeException error) {
            answer("error", error.getClass().getSimpleName(), String.valueOf(error.getMessage()), "");
        } finally {
            System.out.flush();
            System.err.flush();
            answer("done");
        }
    }

    // Reports an error; returns whether there was one.
    private boolean failed(SnippetEvent event, String source) {
        if (event.status() == Snippet.Status.REJECTED) {
            String message = shell.diagnostics(event.snippet()).filter(Diag::isError)
                .map(diagnostic -> diagnostic.getMessage(Locale.ROOT)).collect(Collectors.joining("\n"));
            answer("error", "CompilationError", message, source.strip() + "\n" + message);
            return true;
        }
        JShellException error = event.exception();
        if (error == null || stopped) {
            return false;
        }
        if (error instanceof EvalException) {
            EvalException thrown = (EvalException) error;
            String name = thrown.getExceptionClassName();
            answer("error", name.substring(name.lastIndexOf('.') + 1), String.valueOf(thrown.getMessage()), trace(name, thrown));
        } else {
            String missing = shell.unresolvedDependencies(((UnresolvedReferenceException) error).getSnippet()).collect(Collectors.joining(", "));
            answer("error", "UnresolvedReferenceException", "not defined yet: " + missing, "not defined yet: " + missing);
        }
        return true;
    }

    private static String trace(String name, EvalException error) {
        Stream<String> calls = Stream.of(error.getStackTrace()).map(call -> "    at " + call);
        return name + ": " + error.getMessage() + "\n" + calls.collect(Collectors.joining("\n"));
    }

    private static boolean isExpression(Snippet snippet) {
        return snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND || snippet.subKind() == Snippet.SubKind.VAR_VALUE_SUBKIND;
    }

    // The shell shows a string as it is written in code; this returns its characters between quotes.
    private static String shown(SnippetEvent event) {
        String value = event.value();
        if (event.snippet() instanceof VarSnippet && ((VarSnippet) event.snippet()).typeName().equals("String") && value.startsWith("\"")) {
            try {
                return '"' + value.substring(1, value.length() - 1).translateEscapes() + '"';
            } catch (IllegalArgumentException other) {
                return value;
            }
        }
        return value;
    }

    private synchronized void answer(String kind, String... texts) {
        StringBuilder line = new StringBuilder(kind);
        for (String text : texts) {
            line.append(' ').append(Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)));
        }
        answers.print(line.append('\n'));
        answers.flush();
    }

    // One of the two output streams of the code.
    private class Output extends OutputStream {
        private final String kind;

        Output(String kind) {
            this.kind = kind;
        }

        @Override
        public void write(int one) {
            write(new byte[] {(byte) one}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            byte[] part = java.util.Arrays.copyOfRange(bytes, from, from + length);
            synchronized (JavaShell.this) {
                answers.print(kind + " " + Base64.getEncoder().encodeToString(part) + "\n");
                answers.flush();
            }
        }
    }
}
