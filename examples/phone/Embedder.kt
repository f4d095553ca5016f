import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import ai.onnxruntime.OrtSession
import android.graphics.Bitmap
import android.graphics.ImageDecoder
import ai.onnxruntime.OnnxJavaType
import java.nio.ByteBuffer
import org.json.JSONObject

class Embedder(bundle: ByteArray) {
    private val environment = OrtEnvironment.getEnvironment()
    private val session = environment.createSession(
        bundle,
        OrtSession.SessionOptions().apply { setIntraOpNumThreads(1) }, // addXnnpack(emptyMap()) may be faster: measure
    )
    val metadata = JSONObject(session.metadata.customMetadata.getValue("familiar"))
    private val preprocessing = metadata.getJSONObject("preprocessing")
    private val size = preprocessing.getInt("size_px")

    init {
        require(metadata.getString("format") == "familiar-bundle/1" && preprocessing.getString("resize") == "stretch")
    }

    fun embedding(photo: ImageDecoder.Source): FloatArray {
        var bitmap = ImageDecoder.decodeBitmap(photo) { decoder, info, _ ->
            decoder.allocator = ImageDecoder.ALLOCATOR_SOFTWARE // so that the pixels can be read
            decoder.setTargetSampleSize(maxOf(1, minOf(info.size.width, info.size.height) / (2 * size)))
        }
        while (minOf(bitmap.width, bitmap.height) >= 2 * size) { // it averages four pixels, so at most by two
            bitmap = Bitmap.createScaledBitmap(bitmap, bitmap.width / 2, bitmap.height / 2, true)
        }
        bitmap = Bitmap.createScaledBitmap(bitmap, size, size, true)
        val argb = IntArray(size * size)
        bitmap.getPixels(argb, 0, size, 0, 0, size, size)
        val rgb = ByteBuffer.allocateDirect(3 * argb.size)
        for (pixel in argb) for (shift in intArrayOf(16, 8, 0)) rgb.put((pixel shr shift).toByte())
        rgb.rewind()
        val shape = longArrayOf(1, size.toLong(), size.toLong(), 3)
        OnnxTensor.createTensor(environment, rgb, shape, OnnxJavaType.UINT8).use { input ->
            session.run(mapOf(session.inputNames.first() to input)).use { outputs ->
                @Suppress("UNCHECKED_CAST")
                return (outputs[0].value as Array<FloatArray>)[0]
            }
        }
    }
}

fun similarity(first: FloatArray, second: FloatArray): Float =
    first.indices.sumOf { (first[it] * second[it]).toDouble() }.toFloat()
