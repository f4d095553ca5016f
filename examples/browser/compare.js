/** What unit vectors say of each other, by the bundle's calibration: embedding/verification.py and neighbors/clustering.py. */

/** Cosine of two unit vectors, in [-1, 1]. */
export function similarity(left, right) {
  return Math.min(Math.max(dot(left, right), -1), 1);
}

/** That both show one individual, were both answers equally likely beforehand; null where nothing was fitted. */
export function probabilitySame(similarity, { slope, intercept }) {
  return slope === null ? null : 1 / (1 + Math.exp(-(slope * similarity + intercept)));
}

/** Whether two embeddings show one individual, by their bundle; `same` is null where that was never calibrated. */
export function verify(left, right, calibration) {
  const alike = similarity(left, right);
  const same = calibration.slope === null ? null : alike >= calibration.balanced.similarity;
  return { similarity: alike, probability: probabilitySame(alike, calibration), same };
}

/**
 * Places of `embeddings` by group, the first ones first. The two groups whose mean vectors are most alike become one,
 * again and again, as long as those are at least `threshold` alike (centroid linkage).
 */
export function group(embeddings, threshold) {
  const groups = embeddings.map((_, place) => [place]);
  const sums = embeddings.map((embedding) => Float64Array.from(embedding));
  const alike = sums.map((left) => Float64Array.from(sums, (right) => cosine(left, right))); // [i][j] for i < j
  for (;;) {
    let [closest, into, gone] = [-Infinity, -1, -1];
    for (let i = 0; i < groups.length; i++) {
      for (let j = i + 1; j < groups.length; j++) {
        if (alike[i][j] > closest) [closest, into, gone] = [alike[i][j], i, j];
      }
    }
    if (into < 0 || closest < threshold) return groups.filter((places) => places.length);
    groups[into] = [...groups[into], ...groups[gone]].sort((left, right) => left - right);
    groups[gone] = [];
    sums[into] = sums[into].map((value, i) => value + sums[gone][i]);
    for (let other = 0; other < groups.length; other++) {
      alike[Math.min(gone, other)][Math.max(gone, other)] = -Infinity;
      if (groups[other].length) {
        alike[Math.min(into, other)][Math.max(into, other)] = cosine(sums[into], sums[other]);
      }
    }
  }
}

function cosine(left, right) {
  return dot(left, right) / Math.sqrt(dot(left, left) * dot(right, right));
}

function dot(left, right) {
  let sum = 0;
  for (let i = 0; i < left.length; i++) sum += left[i] * right[i];
  return sum;
}
