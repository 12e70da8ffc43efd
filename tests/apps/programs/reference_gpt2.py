"""GPT-2's forward pass in plain Python, in double precision, from tensors named as Hugging Face names them: the value that the
programs' losses and logits are compared with. (Radford et al., 2019; Conv1D weights are (in, out).)"""
import math


class Model:
    def __init__(self, tensors, heads, eps=1e-5):
        """`tensors`: name to (shape, flat list of floats)."""
        self.tensors, self.heads, self.eps = tensors, heads, eps
        self.layers = 1 + max(int(n.split(".h.")[1].split(".")[0]) for n in tensors if ".h." in n)

    def vector(self, name):
        return self.tensors["transformer." + name][1]

    def rows(self, name):
        shape, values = self.tensors["transformer." + name]
        return [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]

    def norm(self, x, name):
        mean = math.fsum(x) / len(x)
        variance = math.fsum((v - mean) ** 2 for v in x) / len(x)
        scale = 1 / math.sqrt(variance + self.eps)
        return [(v - mean) * scale * w + b for v, w, b in zip(x, self.vector(name + ".weight"), self.vector(name + ".bias"))]

    def linear(self, x, name):
        weight, result = self.rows(name + ".weight"), list(self.vector(name + ".bias"))
        for value, row in zip(x, weight):
            for j, w in enumerate(row):
                result[j] += value * w
        return result

    def attention(self, xs, name):
        width = len(xs[0])
        size = width // self.heads
        qkv = [self.linear(x, name + ".c_attn") for x in xs]
        mixed = []
        for t in range(len(xs)):
            row = []
            for h in range(self.heads):
                q = qkv[t][h * size:(h + 1) * size]
                scores = [sum(a * b for a, b in zip(q, qkv[s][width + h * size:])) / math.sqrt(size) for s in range(t + 1)]
                weights = [math.exp(s - max(scores)) for s in scores]
                row += [sum(w * qkv[s][2 * width + h * size + d] for s, w in enumerate(weights)) / sum(weights)
                        for d in range(size)]
            mixed.append(self.linear(row, name + ".c_proj"))
        return mixed

    def feed_forward(self, x, name):
        inner = self.linear(x, name + ".c_fc")
        return self.linear([0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3))) for v in inner],
                           name + ".c_proj")

    def logits(self, ids):
        """A row of logits for each id."""
        tokens, positions = self.rows("wte.weight"), self.rows("wpe.weight")
        xs = [[a + b for a, b in zip(tokens[i], positions[t])] for t, i in enumerate(ids)]
        for layer in range(self.layers):
            name = f"h.{layer}"
            mixed = self.attention([self.norm(x, name + ".ln_1") for x in xs], name + ".attn")
            xs = [[a + b for a, b in zip(x, m)] for x, m in zip(xs, mixed)]
            fed = [self.feed_forward(self.norm(x, name + ".ln_2"), name + ".mlp") for x in xs]
            xs = [[a + b for a, b in zip(x, f)] for x, f in zip(xs, fed)]
        xs = [self.norm(x, "ln_f") for x in xs]
        shape, values = self.tensors.get("lm_head.weight", self.tensors["transformer.wte.weight"])
        table = [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
        return [[sum(a * b for a, b in zip(x, row)) for row in table] for x in xs]

    def losses(self, ids):
        """Nats of each id but the first."""
        result = []
        for row, target in zip(self.logits(ids[:-1]), ids[1:]):
            top = max(row)
            result.append(top + math.log(math.fsum(math.exp(v - top) for v in row)) - row[target])
        return result
