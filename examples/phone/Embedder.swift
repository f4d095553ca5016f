import CoreGraphics
import Foundation
import ImageIO
import onnxruntime_objc

struct NoBundle: Error {}
struct NoPhoto: Error {}

final class Embedder {
    let metadata: [String: Any]
    private let environment: ORTEnv
    private let session: ORTSession
    private let size: Int

    init(bundle: URL) throws {
        let file = try Data(contentsOf: bundle, options: .mappedIfSafe)
        let key = Data([0x0A, 0x08]) + Data("familiar".utf8) + Data([0x12])
        guard let keyRange = file.range(of: key, options: .backwards),
            let length = file[keyRange.upperBound...].firstIndex(where: { $0 < 0x80 }),
            let metadata = try JSONSerialization.jsonObject(with: file[(length + 1)...]) as? [String: Any],
            metadata["format"] as? String == "familiar-bundle/1",
            let preprocessing = metadata["preprocessing"] as? [String: Any],
            preprocessing["resize"] as? String == "stretch",
            let size = preprocessing["size_px"] as? Int
        else { throw NoBundle() }
        self.metadata = metadata
        self.size = size
        environment = try ORTEnv(loggingLevel: .error)
        let options = try ORTSessionOptions()
        try options.setIntraOpNumThreads(1)
        // On the Neural Engine, with a bundle for phones, if measurements show it is faster. It computes in float16.
        // try options.appendCoreMLExecutionProvider(withOptionsV2: ["ModelFormat": "MLProgram"])
        session = try ORTSession(env: environment, modelPath: bundle.path, sessionOptions: options)
    }

    func embedding(of photo: URL) throws -> [Float] {
        let upright: [CFString: Any] = [
            kCGImageSourceCreateThumbnailFromImageAlways: true,
            kCGImageSourceCreateThumbnailWithTransform: true,  // by the EXIF orientation
            kCGImageSourceThumbnailMaxPixelSize: 8 * size,
        ]
        guard let source = CGImageSourceCreateWithURL(photo as CFURL, nil),
            let image = CGImageSourceCreateThumbnailAtIndex(source, 0, upright as CFDictionary),
            let context = CGContext(
                data: nil, width: size, height: size, bitsPerComponent: 8, bytesPerRow: 4 * size,
                space: CGColorSpace(name: CGColorSpace.sRGB)!,
                bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
        else { throw NoPhoto() }
        let square = CGRect(x: 0, y: 0, width: size, height: size)
        context.setFillColor(gray: 1, alpha: 1)
        context.fill(square)
        context.interpolationQuality = .high
        context.draw(image, in: square)
        guard let rgba = context.data?.assumingMemoryBound(to: UInt8.self) else { throw NoPhoto() }
        var rgb = [UInt8]()
        for pixel in 0..<(size * size) { rgb += [rgba[4 * pixel], rgba[4 * pixel + 1], rgba[4 * pixel + 2]] }
        let input = try ORTValue(
            tensorData: NSMutableData(data: Data(rgb)), elementType: .uInt8,
            shape: [1, NSNumber(value: size), NSNumber(value: size), 3])
        let (inputName, outputName) = (try session.inputNames()[0], try session.outputNames()[0])
        let outputs = try session.run(withInputs: [inputName: input], outputNames: [outputName], runOptions: nil)
        let embedding = try outputs[outputName]!.tensorData() as Data
        return embedding.withUnsafeBytes { Array($0.bindMemory(to: Float.self)) }
    }
}

func similarity(_ first: [Float], _ second: [Float]) -> Float {
    zip(first, second).reduce(0) { $0 + $1.0 * $1.1 }
}
