// Scalar references of the kernels: the formulas as a textbook writes them, on any float type, with no
// blocking and no vector code. Finite differences are taken on them in double. Matrices are row-major
// vectors.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/checked.h"

namespace penstock::reference {

template <class Real>
using Vector = std::vector<Real>;

inline std::size_t at(Index i) { return static_cast<std::size_t>(i); }

template <class Real>
Real gelu(Real x) {
  const Real root = std::sqrt(Real(2) / Real(3.14159265358979323846));
  return Real(0.5) * x * (Real(1) + std::tanh(root * (x + Real(0.044715) * x * x * x)));
}

template <class Real>
Real gelu_slope(Real x) {
  const Real root = std::sqrt(Real(2) / Real(3.14159265358979323846));
  const Real t = std::tanh(root * (x + Real(0.044715) * x * x * x));
  return Real(0.5) * (Real(1) + t) +
         Real(0.5) * x * (Real(1) - t * t) * root * (Real(1) + Real(3 * 0.044715) * x * x);
}

/// C (m, n) = op(A) op(B) + bias (empty: none) + C where accumulate
template <class Real>
void gemm(Index m, Index n, Index k, bool transpose_a, bool transpose_b, const Vector<Real>& a,
          const Vector<Real>& b, const Vector<Real>& bias, bool accumulate, Vector<Real>& c) {
  for (Index i = 0; i < m; ++i)
    for (Index j = 0; j < n; ++j) {
      Real sum = 0;
      for (Index p = 0; p < k; ++p)
        sum += a[at(transpose_a ? p * m + i : i * k + p)] * b[at(transpose_b ? j * k + p : p * n + j)];
      if (!bias.empty() && !accumulate) sum += bias[at(j)];
      c[at(i * n + j)] = accumulate ? c[at(i * n + j)] + sum : sum;
    }
}

template <class Real>
struct LayerNorm {
  Vector<Real> y, mean, rstd;
};

template <class Real>
LayerNorm<Real> layer_norm(Index rows, Index cols, Real eps, const Vector<Real>& x, const Vector<Real>& gain,
                           const Vector<Real>& bias) {
  LayerNorm<Real> r{Vector<Real>(at(rows * cols)), Vector<Real>(at(rows)), Vector<Real>(at(rows))};
  for (Index i = 0; i < rows; ++i) {
    Real mean = 0, variance = 0;
    for (Index j = 0; j < cols; ++j) mean += x[at(i * cols + j)] / Real(cols);
    for (Index j = 0; j < cols; ++j)
      variance += (x[at(i * cols + j)] - mean) * (x[at(i * cols + j)] - mean) / Real(cols);
    r.mean[at(i)] = mean;
    r.rstd[at(i)] = Real(1) / std::sqrt(variance + eps);
    for (Index j = 0; j < cols; ++j)
      r.y[at(i * cols + j)] = (x[at(i * cols + j)] - mean) * r.rstd[at(i)] * gain[at(j)] + bias[at(j)];
  }
  return r;
}

/// dx by the Jacobian of the normalisation, written out: d xhat_j / d x_k = rstd (delta_jk - 1/n - xhat_j
/// xhat_k / n).
template <class Real>
Vector<Real> layer_norm_input_gradient(Index rows, Index cols, const Vector<Real>& x,
                                       const Vector<Real>& gain, const Vector<Real>& mean,
                                       const Vector<Real>& rstd, const Vector<Real>& dy) {
  Vector<Real> dx(at(rows * cols));
  Vector<Real> xhat(at(cols));
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < cols; ++j) xhat[at(j)] = (x[at(i * cols + j)] - mean[at(i)]) * rstd[at(i)];
    for (Index k = 0; k < cols; ++k) {
      Real sum = 0;
      for (Index j = 0; j < cols; ++j)
        sum += dy[at(i * cols + j)] * gain[at(j)] * rstd[at(i)] *
               ((j == k ? Real(1) : Real(0)) - Real(1) / Real(cols) - xhat[at(j)] * xhat[at(k)] / Real(cols));
      dx[at(i * cols + k)] = sum;
    }
  }
  return dx;
}

template <class Real>
Real log_sum_exp(const Real* row, Index n) {
  Real top = -std::numeric_limits<Real>::infinity();
  for (Index i = 0; i < n; ++i) top = std::max(top, row[i]);
  if (top == -std::numeric_limits<Real>::infinity()) return top;
  Real sum = 0;
  for (Index i = 0; i < n; ++i) sum += std::exp(row[i] - top);
  return top + std::log(sum);
}

/// Which keys a query sees.
struct Attention {
  Index batch, queries, keys, heads, kv_heads, head;
  double scale;
  bool causal = true;
  Index query_offset = 0, window = 0;
  Vector<std::int32_t> segments = {};  // (batch, keys) or empty

  bool sees(Index b, Index query, Index key) const {
    const Index position = query_offset + query;
    if (causal && key > position) return false;
    if (window > 0 && !(key > position - window)) return false;
    return segments.empty() || segments[at(b * keys + key)] == segments[at(b * keys + position)];
  }
};

template <class Real>
struct AttentionResult {
  Vector<Real> out, lse, dq, dk, dv;
};

/// Forward and gradients over the full matrix of scores, dense (B, T, H, D) tensors. A query that sees no key
/// has output 0 and no gradient.
template <class Real>
AttentionResult<Real> attention(const Attention& s, const Vector<Real>& q, const Vector<Real>& k,
                                const Vector<Real>& v, const Vector<Real>& dout) {
  AttentionResult<Real> r;
  r.out.assign(q.size(), 0);
  r.dq.assign(q.size(), 0);
  r.dk.assign(k.size(), 0);
  r.dv.assign(v.size(), 0);
  r.lse.assign(at(s.batch * s.heads * s.queries), -std::numeric_limits<Real>::infinity());
  Vector<Real> score(at(s.keys)), p(at(s.keys)), dp(at(s.keys));
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index i = 0; i < s.queries; ++i) {
        const Index kv = h / (s.heads / s.kv_heads);
        const Index row = ((b * s.queries + i) * s.heads + h) * s.head;
        const auto key_row = [&](Index j) { return ((b * s.keys + j) * s.kv_heads + kv) * s.head; };
        for (Index j = 0; j < s.keys; ++j) {
          Real sum = 0;
          for (Index d = 0; d < s.head; ++d) sum += q[at(row + d)] * Real(s.scale) * k[at(key_row(j) + d)];
          score[at(j)] = s.sees(b, i, j) ? sum : -std::numeric_limits<Real>::infinity();
        }
        const Real lse = log_sum_exp(score.data(), s.keys);
        r.lse[at((b * s.heads + h) * s.queries + i)] = lse;
        if (lse == -std::numeric_limits<Real>::infinity()) continue;
        Real expected_dp = 0;
        for (Index j = 0; j < s.keys; ++j) {
          p[at(j)] = std::exp(score[at(j)] - lse);
          dp[at(j)] = 0;
          for (Index d = 0; d < s.head; ++d) {
            r.out[at(row + d)] += p[at(j)] * v[at(key_row(j) + d)];
            dp[at(j)] += dout[at(row + d)] * v[at(key_row(j) + d)];
            r.dv[at(key_row(j) + d)] += p[at(j)] * dout[at(row + d)];
          }
          expected_dp += p[at(j)] * dp[at(j)];
        }
        for (Index j = 0; j < s.keys; ++j) {
          const Real ds = p[at(j)] * (dp[at(j)] - expected_dp) * Real(s.scale);
          for (Index d = 0; d < s.head; ++d) {
            r.dq[at(row + d)] += ds * k[at(key_row(j) + d)];
            r.dk[at(key_row(j) + d)] += ds * q[at(row + d)];
          }
        }
      }
  return r;
}

}  // namespace penstock::reference
